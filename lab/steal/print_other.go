//go:build !linux

package steal

import (
	"context"
	"errors"
	"io"
	"time"
)

// Print fails: only Linux can be watched.
func Print(context.Context, time.Duration, io.Reader, io.Writer) error {
	return errors.New("steal: only Linux can be watched")
}

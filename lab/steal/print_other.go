//go:build !linux

package steal

import (
	"context"
	"errors"
	"io"
	"time"
)

// Print is an error: it needs real-time priority on a processor of its choice.
func Print(context.Context, time.Duration, io.Reader, io.Writer) error {
	return errors.New("steal: needs Linux")
}

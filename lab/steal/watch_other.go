//go:build !linux

package steal

import (
	"context"
	"errors"
	"time"
)

// Watch is for Linux alone; elsewhere it fails.
func Watch(context.Context, time.Duration, func(), func(Stop)) error {
	return errors.New("steal: only Linux can be watched")
}

//go:build !linux

package steal

import (
	"context"
	"errors"
)

// Watch is for Linux alone; elsewhere it fails.
func Watch(context.Context, func(Stop)) error {
	return errors.New("steal: only Linux can be watched")
}

//go:build !linux

package replica

import "errors"

// bindToDevice is an error.
func bindToDevice(int, string) error { return errors.New("--device needs Linux") }

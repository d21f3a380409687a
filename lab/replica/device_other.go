//go:build !linux

package replica

import (
	"errors"
	"syscall"
)

func bindToDevice(string) func(network, address string, c syscall.RawConn) error {
	return func(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
}

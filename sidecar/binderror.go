package sidecar

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

// BindError is why no socket listens at an address.
type BindError struct {
	Setting, address string // the setting has the address
	err              error
}

// Error implements error.
func (e *BindError) Error() string {
	why := e.err
	if op := (*net.OpError)(nil); errors.As(e.err, &op) {
		why = op.Err // without the address
	}
	hint := ""
	switch {
	case errors.Is(why, syscall.EADDRINUSE):
		hint = "; another process listens there"
	case unixaddr.Is(e.address):
	case errors.Is(why, syscall.EACCES):
		hint = "; a port below 1024 needs a privilege"
	case errors.Is(why, syscall.EADDRNOTAVAIL):
		hint = "; this host does not have that address"
	}
	return fmt.Sprintf("%s: can't listen at %s: %v%s", e.Setting, e.address, why, hint)
}

// Unwrap returns the error of the system.
func (e *BindError) Unwrap() error { return e.err }

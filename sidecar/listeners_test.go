package sidecar

import (
	"net"
	"os"
	"syscall"
	"testing"
)

// TestBindErrors: the error of a low port names its setting, and the reason.
func TestBindErrors(t *testing.T) {
	// Root may bind all ports, so no process shows it.
	low := &BindError{"listeners[0].address", "127.0.0.1:80", &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}}
	if got := low.Error(); got != "listeners[0].address: can't listen at 127.0.0.1:80: bind: permission denied; a port below 1024 needs a privilege" {
		t.Error(got)
	}
}

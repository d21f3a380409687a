package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestBindErrors: an address that can't be bound is named with its setting, and the reason.
func TestBindErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr, free := taken.Addr().String(), freeAddrs(t, 2)
	listeners := func(first, second string) string {
		return fmt.Sprintf(`
listeners:
  - {name: a, address: %q, protocol: http, service: app}
  - {name: b, address: %q, protocol: http, service: app}
services: {app: {discover: static, endpoints: ["127.0.0.1:1"]}}`, first, second)
	}
	for _, c := range []struct{ yaml, want string }{
		{listeners(addr, free[1]), "remora: listeners[0].address: can't listen at " + addr + ": bind: address already in use; another process listens there\n"},
		{listeners(free[0], addr), "remora: listeners[1].address: can't listen at " + addr + ": bind: address already in use; another process listens there\n"},
		{listeners(free[0], "192.0.2.1:80"), "remora: listeners[1].address: can't listen at 192.0.2.1:80: bind: cannot assign requested address; this host does not have that address\n"},
		{listeners(free[0], "no.invalid:80"), "remora: listeners[1].address: can't listen at no.invalid:80: lookup no.invalid"},
	} {
		p := startRemora(t, c.yaml)
		if code := p.exitCode(); code != exitFailed || !strings.Contains(p.output.String(), c.want) {
			t.Errorf("exit code %d, %s, want %s", code, p.output, c.want)
		}
	}

	p := newProcess(t, "")
	p.admin = addr
	p.write(listeners(free[0], free[1]))
	p = p.again()
	if code, want := p.exitCode(), "remora: admin.address: can't listen at "+addr+": bind: address already in use"; code != exitFailed ||
		!strings.Contains(p.output.String(), want) {
		t.Errorf("exit code %d, %s, want %s", code, p.output, want)
	}

	// Root may bind all ports.
	low := &bindError{"listeners[0].address", "127.0.0.1:80", &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}}
	if got := low.Error(); got != "listeners[0].address: can't listen at 127.0.0.1:80: bind: permission denied; a port below 1024 needs a privilege" {
		t.Error(got)
	}
}

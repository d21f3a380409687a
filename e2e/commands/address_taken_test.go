package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestAddressTaken: an address that can't be bound is named with its setting, and the reason.
func TestAddressTaken(t *testing.T) {
	taken := must.Listen(t)
	addr, free := taken.Addr().String(), harness.FreeAddrs(t, 2)
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
		p := harness.Start(t, c.yaml)
		if code := p.ExitCode(); code != harness.ExitFailed || !strings.Contains(p.Output.String(), c.want) {
			t.Errorf("exit code %d, %s, want %s", code, p.Output, c.want)
		}
	}

	p := harness.NewProcess(t, "")
	p.Admin = addr
	p.Write(listeners(free[0], free[1]))
	p = p.Again()
	if code, want := p.ExitCode(), "remora: admin.address: can't listen at "+addr+": bind: address already in use"; code != harness.ExitFailed ||
		!strings.Contains(p.Output.String(), want) {
		t.Errorf("exit code %d, %s, want %s", code, p.Output, want)
	}
}

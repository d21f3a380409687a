package sidecar

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry/reach"
)

// TestOwnAddresses: the admin API and listeners are known as this sidecar's own, whether the file has their IP addresses or
// host names, from the start on and after a reload.
func TestOwnAddresses(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			addrs, app := harness.FreeAddrs(t, 3), harness.NewApp(t).Addr
			at := func(i int) string { return strings.Replace(addrs[i], "127.0.0.1", host, 1) }
			with := func(listeners ...string) *config.Config {
				var list []string
				for i, name := range listeners {
					list = append(list, fmt.Sprintf("{name: %s, address: %q, protocol: http, service: app}", name, at(i+1)))
				}
				cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: %q}
listeners: [%s]
services: {app: {discover: static, endpoints: [%q], protocol: http}}`, at(0), strings.Join(list, ", "), app), nil)
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			s, err := start(t.Context(), quiet(t, with("first"), ""))
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			expect := func(when string, want ...reach.Reason) {
				t.Helper()
				for i, reason := range want {
					if got := s.discovery.reach.own("app", netip.MustParseAddrPort(addrs[i])); got != reason {
						t.Errorf("%s, %s: %q, want %q", when, at(i), got, reason)
					}
				}
			}
			expect("after the start", reach.Admin, reach.Loop, "")
			for _, c := range []struct {
				when string
				next *config.Config
				want reach.Reason // of the second listener
			}{
				{"after a listener was added", with("first", "second"), reach.Loop},
				{"after a listener was removed", with("first"), ""},
			} {
				s.changing.Lock()
				err := s.reloads.apply(c.next)
				s.changing.Unlock()
				if err != nil {
					t.Fatalf("%s: %v", c.when, err)
				}
				expect(c.when, reach.Admin, reach.Loop, c.want)
			}
		})
	}
}

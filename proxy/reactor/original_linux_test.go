package reactor

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/redirecttest"
)

// TestOriginalDst: a redirected connection has an original destination. A connection to the listener itself has none, nor has a
// closed connection.
func TestOriginalDst(t *testing.T) {
	for _, c := range []struct{ tables, listen, host string }{
		{"iptables", "127.0.0.1:22136", "127.0.0.1"}, {"iptables", "[::]:22136", "127.0.0.1"}, {"ip6tables", "[::1]:22136", "::1"},
	} {
		t.Run(c.tables+" "+c.listen, func(t *testing.T) {
			redirecttest.Redirect(t, c.tables, 4660, 22136)
			ln, err := net.Listen("tcp", c.listen)
			if strings.HasPrefix(c.listen, "[") {
				redirecttest.SkipWithoutIPv6(t, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			host := netip.MustParseAddr(c.host)
			redirected, direct := netip.AddrPortFrom(host, 4660), netip.AddrPortFrom(host, 22136)
			for to, want := range map[netip.AddrPort]netip.AddrPort{redirected: redirected, direct: {}} {
				must.Dial(t, "tcp", to.String())
				nc, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if got := originalDst(nc.(*net.TCPConn)); got != want {
					t.Errorf("a connection to %s has the original destination %s, want %s", to, got, want)
				}
				nc.Close()
				if got := originalDst(nc.(*net.TCPConn)); got.IsValid() {
					t.Errorf("a closed connection has the original destination %s", got)
				}
			}
		})
	}
}

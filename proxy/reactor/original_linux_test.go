package reactor

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
)

// TestOriginalDst: a redirected connection has an original destination, and one that was made to the listener has none. The
// test needs root and iptables, to redirect in a network of its own.
func TestOriginalDst(t *testing.T) {
	for _, c := range []struct{ tables, listen, host string }{
		{"iptables", "127.0.0.1:22136", "127.0.0.1"}, {"iptables", "[::]:22136", "127.0.0.1"}, {"ip6tables", "[::1]:22136", "::1"},
	} {
		t.Run(c.tables+" "+c.listen, func(t *testing.T) {
			runtime.LockOSThread() // and never unlocked: the thread ends with its network
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Skip(err)
			}
			for _, command := range []string{"ip link set lo up", c.tables + " -w -t nat -A OUTPUT -p tcp --dport 4660 -j REDIRECT --to-ports 22136"} {
				args := strings.Fields(command)
				if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Skipf("%s: %v, %s", command, err, out)
				}
			}
			ln, err := net.Listen("tcp", c.listen)
			if strings.HasPrefix(c.listen, "[") && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
				t.Skip(err) // a host without IPv6
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
				defer nc.Close()
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

package reactor

import (
	"net"
	"strconv"
	"testing"
)

// TestBindWildcards: the wildcard of IPv4 takes no connection of IPv6. That of IPv6, and no host,
// take both.
func TestBindWildcards(t *testing.T) {
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6: ", err)
	} else {
		ln.Close()
	}
	for addr, both := range map[string]bool{"0.0.0.0:0": false, "[::]:0": true, ":0": true} {
		ln, err := Bind(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
		for host, want := range map[string]bool{"127.0.0.1": true, "::1": both} {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), waitLimit)
			if err == nil {
				c.Close()
			}
			if connected := err == nil; connected != want {
				t.Errorf("%s: a connection to %s: %t, want %t: %v", addr, host, connected, want, err)
			}
		}
	}
}

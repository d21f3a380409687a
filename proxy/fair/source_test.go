package fair

import (
	"net"
	"testing"
)

func TestSourceOf(t *testing.T) {
	for _, c := range []struct {
		ip, zone, want string
	}{
		{"192.0.2.7", "", "192.0.2.7"},
		{"::ffff:192.0.2.7", "", "192.0.2.7"},
		{"2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::"},
		{"2001:db8:1:2:ffff:ffff:ffff:ffff", "", "2001:db8:1:2::"},
		{"2001:db8:1:3::", "", "2001:db8:1:3::"},
		{"fe80::1", "eth0", "fe80::"},
	} {
		if got := SourceOf(&net.TCPAddr{IP: net.ParseIP(c.ip), Zone: c.zone, Port: 9}); got.String() != c.want {
			t.Errorf("%s%%%s counts for %s, want %s", c.ip, c.zone, got, c.want)
		}
	}
	if got := SourceOf(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("an address that is not of TCP counts for %s", got)
	}
}

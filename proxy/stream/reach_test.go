package stream

import (
	"net/netip"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// TestReach checks what a list lets through: names never open a special address, and a network
// only opens one within which it is.
func TestReach(t *testing.T) {
	const here = "10.0.0.5"
	for _, c := range []struct {
		allow    []string
		host, to string
		want     bool
	}{
		{nil, "a.test", "203.0.113.1:80", true},
		{nil, "a.test", "10.0.0.6:80", true},
		{nil, "a.test", here + ":80", false},
		{nil, "a.test", "127.0.0.1:80", false},
		{nil, "a.test", "[2001:db8::1]:80", true},
		{nil, "a.test", "[64:ff9b::cb00:7101]:80", true},
		{nil, "a.test", "[64:ff9b::a9fe:a9fe]:80", false},
		{nil, "a.test", "[2002:a9fe:a9fe::]:80", false},
		{nil, "a.test", "[64:ff9b:1::a9fe:a9fe]:80", false},
		{nil, "a.test", "[64:ff9b:1:a9fe:a9:fe00::]:80", false}, // 169.254.169.254 behind 48 bits
		{nil, "a.test", "[64:ff9b:1:fe:a9:fea9:fe00:0]:80", false},
		{nil, "a.test", "[64:ff9b:1::cb00:7101]:80", false},
		{[]string{"64:ff9b:1::/48"}, "a.test", "[64:ff9b:1::cb00:7101]:80", true},
		{nil, "a.test", "[::ffff:0:a9fe:a9fe]:80", false},
		{nil, "a.test", "[::ffff:0:cb00:7101]:80", false},
		{nil, "a.test", "[2001:0:a9fe:a9fe::1]:80", false},
		{nil, "a.test", "[2001:0:cb00:7101:0:ffff:5601:5601]:80", false},
		{nil, "a.test", "[2001:db8::5efe:a9fe:a9fe]:80", false},
		{nil, "a.test", "[2001:db8::200:5efe:7f00:1]:80", false},
		{nil, "a.test", "[fe80::5efe:cb00:7101]:80", false},
		{nil, "a.test", "[2001:db8::5efe:cb00:7101]:80", true},
		{nil, "a.test", "[2001:db8::400:5efe:7f00:1]:80", true},
		{[]string{"*", "2000::/3"}, "a.test", "[2001:0:cb00:7101::1]:80", false},
		{[]string{"2001::/32"}, "a.test", "[2001:0:cb00:7101::1]:80", true},
		{nil, "a.test", "[2001:1::1]:80", true},
		{nil, "a.test", "[fd00:ec2::23]:80", false},
		{nil, "a.test", "[fd00:c1::a9fe:a9fe]:80", false},
		{nil, "a.test", "[fd00:42::42]:80", false},
		{[]string{"fd00:ec2::254"}, "a.test", "[fd00:ec2::254]:80", true},
		{[]string{"a.test"}, "a.test", "203.0.113.1:80", true},
		{[]string{"A.test"}, "a.test", "203.0.113.1:80", true},
		{[]string{"A.test."}, "a.test", "203.0.113.1:80", true},
		{[]string{"*.A.test."}, "b.a.test", "203.0.113.1:80", true},
		{[]string{"[::ffff:203.0.113.1]"}, "a.test", "203.0.113.1:80", true},
		{[]string{"[2001:db8:0:0::1]"}, "a.test", "[2001:db8::1]:80", true},
		{[]string{"a.test"}, "b.a.test", "203.0.113.1:80", false},
		{[]string{"a.test"}, "a.test", "169.254.169.254:80", false}, // as after a rebinding
		{[]string{"a.test", "127.0.0.1"}, "a.test", "127.0.0.1:80", true},
		{[]string{"*.a.test"}, "b.c.a.test", "203.0.113.1:80", true},
		{[]string{"*.a.test"}, "a.test", "203.0.113.1:80", false},
		{[]string{"*.a.test"}, "bada.test", "203.0.113.1:80", false},
		{[]string{"*"}, "a.test", "203.0.113.1:80", true},
		{[]string{"*"}, "a.test", "[::1]:80", false},
		{[]string{"a.test:443"}, "a.test", "203.0.113.1:80", false},
		{[]string{"a.test:443"}, "a.test", "203.0.113.1:443", true},
		{[]string{"203.0.113.0/24"}, "any.test", "203.0.113.1:80", true},
		{[]string{"203.0.113.0/24:443"}, "any.test", "203.0.113.1:80", false},
		{[]string{"203.0.113.0/24"}, "any.test", "203.0.114.1:80", false},
		{[]string{"0.0.0.0/0"}, "any.test", "127.0.0.1:80", false},
		{[]string{"127.0.0.0/8"}, "any.test", "127.0.0.1:80", true},
		{[]string{"127.0.0.1"}, "any.test", "127.0.0.2:80", false},
		{[]string{"169.254.0.0/16"}, "any.test", "169.254.169.254:80", true},
		{[]string{"10.0.0.0/8"}, "any.test", here + ":80", false},
		{[]string{here + ":81"}, "any.test", here + ":80", false},
		{[]string{here + ":80"}, "any.test", here + ":80", true},
		{[]string{"fd00::/8"}, "any.test", "[fd00:ec2::254]:80", false},
		{[]string{"fd00:ec2::254"}, "any.test", "[fd00:ec2::254]:80", true},
	} {
		d := config.Direct{Allow: c.allow}
		r := reach{allow: d.Destinations(), own: []netip.Addr{netip.MustParseAddr(here)}}
		if got := r.permits(c.host, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%v: %s at %s: %t", c.allow, c.host, c.to, got)
		}
	}
	blind := reach{blind: true}
	if blind.permits("a.test", netip.MustParseAddrPort("203.0.113.1:80")) {
		t.Error("an address that may be one of this host is reached")
	}
}

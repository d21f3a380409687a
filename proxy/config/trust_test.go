package config

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestTrusts: whom a listener believes, by its list and whether only its host can reach it.
func TestTrusts(t *testing.T) {
	for _, c := range []struct {
		list     []string
		loopback bool
		want     string
	}{
		{nil, true, "{true 0 []}"},
		{nil, false, "{false 0 []}"},
		{[]string{"0"}, true, "{false 0 []}"},
		{[]string{"2"}, true, "{false 2 []}"},
		{[]string{"10.1.2.3/8", "::1"}, true, "{false 0 [10.0.0.0/8 ::1/128]}"},
		{[]string{"10.0.0.1"}, false, "{false 0 [10.0.0.1/32]}"},
	} {
		f := Forwarded{Trust: c.list}
		if got := fmt.Sprint(f.Trusts(c.loopback)); got != c.want {
			t.Errorf("%q, loopback %t: %s, want %s", c.list, c.loopback, got, c.want)
		}
	}
}

// TestTrustContains: an address is one of a list in whatever form it comes.
func TestTrustContains(t *testing.T) {
	p := ProxyProtocol{Trust: []string{"10.0.0.0/8", "fe80::/10", "::ffff:192.0.2.1"}}
	trust := p.Trusts()
	for addr, want := range map[string]bool{
		"10.255.0.1": true, "11.0.0.1": false, "::ffff:10.0.0.1": true, "fe80::1%eth0": true, "fec0::1": false, "192.0.2.1": true, "192.0.2.2": false,
	} {
		if got := trust.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
	if (&Trust{All: true}).Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Error("an empty list contains an address")
	}
}

// TestDestinations: which names and addresses an entry of direct.allow is for.
func TestDestinations(t *testing.T) {
	d := Direct{Allow: []string{"API.example.", "*.example:443", "*", "10.1.2.3/16:80", "[::1]:8080", "::2", "bad:0", "10.0.0.1"}}
	want := []string{"{api.example invalid Prefix 0}", "{*.example invalid Prefix 443}", "{* invalid Prefix 0}", "{ 10.1.0.0/16 80}", "{ ::1/128 8080}", "{ ::2/128 0}", "{ 10.0.0.1/32 0}"}
	all := d.Destinations()
	for i, one := range all {
		if got := fmt.Sprint(one); got != want[i] {
			t.Errorf("entry %d: %s, want %s", i, got, want[i])
		}
	}
	if len(all) != len(want) {
		t.Fatalf("%d entries", len(all))
	}
	for _, c := range []struct {
		host string
		want [4]bool // by the first entries
	}{
		{"api.example", [4]bool{true, true, true, false}}, {"x.api.example", [4]bool{false, true, true, false}},
		{"example", [4]bool{false, false, true, false}}, {".example", [4]bool{false, false, true, false}}, {"", [4]bool{}},
	} {
		for i := range c.want {
			if got := all[i].MatchName(c.host); got != c.want[i] {
				t.Errorf("%q by %q: %t", c.host, all[i].Name, got)
			}
		}
	}
}

// TestIsBelow: whole segments of paths are compared.
func TestIsBelow(t *testing.T) {
	for _, c := range []struct {
		below, above string
		want         bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}} {
		if got := isBelow(c.below, c.above); got != c.want {
			t.Errorf("%s below %s: %t", c.below, c.above, got)
		}
	}
}

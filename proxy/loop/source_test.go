package loop

import (
	"net/netip"
	"testing"
)

// TestPeerAddr: for rules, a peer on a Unix socket is on loopback.
func TestPeerAddr(t *testing.T) {
	for remote, want := range map[string]netip.Addr{
		"192.0.2.1:80":     netip.MustParseAddr("192.0.2.1"),
		"[2001:db8::1]:80": netip.MustParseAddr("2001:db8::1"),
		UnixPeer:           netip.MustParseAddr("127.0.0.1"),
		"":                 {},
		"@":                {},
	} {
		if got := PeerAddr(remote); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}

// TestSource: a source is an IPv4 address, however the socket has it, or the network of an IPv6 address.
func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:3::1": "2001:db8:1:3::",
		"fe80::1%eth0": "fe80::", "::1": "::",
	} {
		if got := Source(netip.MustParseAddr(addr)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := Source(netip.Addr{}); got.IsValid() {
		t.Errorf("an invalid address: %s", got)
	}
}

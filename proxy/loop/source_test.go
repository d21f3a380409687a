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

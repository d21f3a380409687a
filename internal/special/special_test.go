package special

import (
	"net/netip"
	"testing"
)

// TestOf: each kind, what is beside its networks, and IPv4 within IPv6.
func TestOf(t *testing.T) {
	for addr, want := range map[string]Kind{
		"127.0.0.1": Loopback, "0.0.0.0": Loopback, "::1": Loopback, "::": Loopback, "::ffff:127.0.0.1": Loopback, "128.0.0.1": "",
		"169.254.169.254": LinkLocal, "fe80::1%eth0": LinkLocal, "169.253.0.1": "", "fec0::1": "",
		"100.100.100.200": Metadata, "fd00:ec2::254": Metadata, "fd00:ec3::254": "",
		"224.0.0.1": Multicast, "ff02::1": Multicast, "255.255.255.255": Broadcast, "240.0.0.1": Reserved, "255.255.255.254": Reserved,
		"2001:0:a00:1::1": Translated, "64:ff9b:1::a00:1": Translated,
		"64:ff9b::7f00:1": Loopback, "2002:a9fe:a9fe::1": LinkLocal, "2001:db8::5efe:7f00:1": Loopback, "64:ff9b::a00:1": "", "2002:a00:1::1": "",
		"10.0.0.1": "", "2001:db8::1": "", "fd00::1": "",
	} {
		n, ok := Of(netip.MustParseAddr(addr))
		if n.Kind != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", addr, n.Kind, want)
		}
		if ok && (n.Opens(netip.MustParsePrefix("0.0.0.0/0")) || !n.Opens(netip.PrefixFrom(n.Addr(), n.Addr().BitLen()))) {
			t.Errorf("%s is opened by too wide a network, or not by its own", addr)
		}
	}
}

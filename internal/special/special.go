// Package special knows the IP addresses that do not name one other host.
package special

import "net/netip"

// Kind says what is special about an address. It is a label in metrics.
type Kind string

// Kinds of addresses.
const (
	Loopback   Kind = "loopback"   // of this host alone, also as 0.0.0.0 and ::, which lead there
	LinkLocal  Kind = "link-local" // with most metadata services
	Metadata   Kind = "metadata"   // a metadata service elsewhere
	Multicast  Kind = "multicast"  // of many hosts
	Broadcast  Kind = "broadcast"  // of all hosts
	Reserved   Kind = "reserved"   // some networks use it as their own
	Translated Kind = "translated" // IPv4 within IPv6 whose position is unknown
)

// Network is a network whose addresses are special.
type Network struct {
	netip.Prefix
	Kind Kind
}

// networks has the special networks. Of two with one address, the first counts.
var networks = []Network{
	network("0.0.0.0/8", Loopback), network("127.0.0.0/8", Loopback),
	network("::/96", Loopback), // it has addresses of IPv4, too
	network("169.254.0.0/16", LinkLocal), network("fe80::/10", LinkLocal),
	network("224.0.0.0/4", Multicast), network("ff00::/8", Multicast),
	network("255.255.255.255/32", Broadcast), network("240.0.0.0/4", Reserved),
	network("100.100.100.200/32", Metadata), network("168.63.129.16/32", Metadata), network("192.0.0.192/32", Metadata), // Alibaba, Azure, Oracle
	network("fd00:ec2::/32", Metadata), network("fd20:ce::254/128", Metadata), // AWS (also the credentials of EKS), Google
	network("fd00:c1::a9fe:a9fe/128", Metadata), network("fd00:42::42/128", Metadata), // Oracle, Scaleway
	// Teredo (RFC 4380), IPv4-translated addresses (RFC 2765), and networks of local translators (RFC 8215).
	network("2001::/32", Translated), network("::ffff:0:0:0/96", Translated), network("64:ff9b:1::/48", Translated),
}

func network(prefix string, kind Kind) Network { return Network{netip.MustParsePrefix(prefix), kind} }

// translated are networks of IPv6 whose addresses have one of IPv4 from a byte on.
var translated = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2},     // RFC 3056
}

// Of returns the special network that an address is in, and the address alone if it stands for a special one of IPv4. IPv4 in
// IPv6 (::ffff:0:0/96) counts as IPv4, and no zone counts. ok is false if nothing is special.
func Of(addr netip.Addr) (n Network, ok bool) {
	addr = addr.Unmap().WithZone("")
	for _, n := range networks {
		if n.Contains(addr) {
			return n, true
		}
	}
	if v4 := Within(addr); v4.IsValid() {
		if n, ok := Of(v4); ok {
			return Network{netip.PrefixFrom(addr, addr.BitLen()), n.Kind}, true
		}
	}
	return Network{}, false
}

// Within returns the address of IPv4 that an address of IPv6 stands for, or the zero Addr.
func Within(addr netip.Addr) netip.Addr {
	b := addr.As16()
	for _, t := range translated {
		if t.prefix.Contains(addr) {
			return netip.AddrFrom4([4]byte(b[t.at : t.at+4]))
		}
	}
	if isatap := b[8]&^3 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe; isatap { // RFC 5214, in any network
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.Addr{}
}

// Opens reports whether an entry of a list of permitted networks opens a special network: it must be the network or a part of it.
// The entry for a wider network was not meant for that.
func (n Network) Opens(entry netip.Prefix) bool { return entry.Bits() >= n.Bits() }

package registry

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAddress means that an address is not "host:port" with an IP address or a host name, and a
// port from 1 to 65535.
var ErrAddress = errors.New("registry: address is not host:port")

// Address is a host and a port in canonical spelling: no leading zeros, names and IPv6 in lower
// case, IPv6 compressed, IPv4 not mapped into IPv6.
type Address struct {
	Host, Port string
	IsIP       bool // whether Host is an IP address
}

// String returns "host:port".
func (a Address) String() string { return net.JoinHostPort(a.Host, a.Port) }

// ParseAddr returns the Address that addr spells. The error is ErrAddress.
func ParseAddr(addr string) (Address, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return Address{}, ErrAddress
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Address{}, ErrAddress
	}
	a := Address{Host: strings.ToLower(host), Port: strconv.FormatUint(n, 10)}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if ip.IsUnspecified() || ip.IsMulticast() || !validZone(ip.Zone()) {
			return Address{}, ErrAddress
		}
		a.Host, a.IsIP = ip.String(), true
	} else if !validHost(host) {
		return Address{}, ErrAddress
	}
	return a, nil
}

// validZone reports whether a zone of an IPv6 address may be the name or number of a network
// interface. netip accepts any text, with control sequences of terminals too.
func validZone(zone string) bool {
	return !strings.ContainsFunc(zone, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// validHost reports whether host is valid by RFC 1123 section 2.1, which it extends by
// underscores, as in the names of container networks. A last label of only digits is refused
// as a mistyped IPv4 address.
func validHost(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := 0; i < len(label); i++ {
			c := label[i] | 0x20
			if (c < 'a' || c > 'z') && (label[i] < '0' || label[i] > '9') && label[i] != '-' && label[i] != '_' {
				return false
			}
		}
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 10, 64)
	return err != nil
}

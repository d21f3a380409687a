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

// ParseAddr splits addr into host and port, and reports whether the host is an IP address. An
// endpoint has only one canonical spelling: no leading zeros, IPv6 in lower case and
// compressed, IPv4 not mapped into IPv6.
func ParseAddr(addr string) (canonical, host string, isIP bool, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "", false, ErrAddress
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", false, ErrAddress
	}
	port = strconv.FormatUint(n, 10)
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if ip.IsUnspecified() || ip.IsMulticast() || !validZone(ip.Zone()) {
			return "", "", false, ErrAddress
		}
		return net.JoinHostPort(ip.String(), port), ip.String(), true, nil
	}
	if !validHost(host) {
		return "", "", false, ErrAddress
	}
	host = strings.ToLower(host)
	return net.JoinHostPort(host, port), host, false, nil
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

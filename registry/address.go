package registry

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAddress is returned for an address that is not "host:port" with a host that
// is an IP address or a host name, and a port from 1 to 65535.
var ErrAddress = errors.New("registry: address is not host:port")

// ParseAddr splits addr into host and port and tells whether the host is an IP
// address. A canonical form of the address (no leading zeros, lower-case and
// compressed IPv6, IPv4 not mapped into IPv6) comes back, so that one endpoint
// has one spelling.
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
		if ip.IsUnspecified() || ip.IsMulticast() {
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

// validHost accepts what RFC 1123 section 2.1 does, and underscores, which
// container networks have in their names. A last label of digits alone is a
// mistyped IPv4 address.
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

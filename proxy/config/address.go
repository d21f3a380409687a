package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/internal/unixaddr"
)

// purpose is the purpose of an address.
type purpose uint8

const (
	bindable purpose = iota // to listen: no host means all, port 0 means any
	dialable                // to connect: host and port are required
)

// checkAddress reports an address that is not suitable for its purpose, and returns false
// for one.
func checkAddress(in scope, at path, addr string, use purpose) bool {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || strings.Contains(addr, "://") {
		in.report(at, "expected host:port, got %q%s", public(addr), addressHint(addr))
		return false
	}
	host, port := addr[:i], addr[i+1:]
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(inner, "]")
		_, err := netip.ParseAddr(host)
		bracketed = err == nil && inner != host
	}
	if strings.ContainsAny(host, "/ []@") || strings.Contains(host, ":") && !bracketed {
		in.report(at, "expected host:port, an IPv6 host as in [::1]:80, got %q%s", public(addr), addressHint(addr))
		return false
	}
	if !isDialled(host) {
		in.report(at, "expected an IP address or a name before the port, got %q%s", public(addr), addressHint(addr))
		return false
	}
	number, err := parseInt(port)
	if err != nil || number < 0 || number > 65535 || number == 0 && use == dialable {
		in.report(at, "expected a port from %d to 65535, got %q", int(use), public(port))
		return false
	}
	if use == dialable {
		ip, err := netip.ParseAddr(host)
		if host == "" || err == nil && ip.IsUnspecified() {
			in.report(at, "expected a host that can be connected to, got %q", public(addr))
			return false
		}
	}
	return true
}

// isDialled reports whether a host is an IP address or may be a name. No host may be, too. A name whose last label is
// a number is a wrong IP address. Characters beyond ASCII may belong to a name.
func isDialled(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	isBad := func(c rune) bool {
		return c < 0x80 && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._", c)
	}
	name := strings.TrimSuffix(host, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return !strings.ContainsFunc(name, isBad) && strings.Trim(last, "0123456789") != ""
}

// checkSocketAddress is checkAddress for one that may be a Unix socket.
func checkSocketAddress(in scope, at path, addr string, use purpose) bool {
	if !unixaddr.Is(addr) {
		return checkAddress(in, at, addr, use)
	}
	if err := unixaddr.Check(addr); err != nil {
		in.report(at, "%s; got %q", err, public(addr))
		return false
	}
	return true
}

// checkEndpointAddress is checkSocketAddress for one that may be a name of SRV records.
func checkEndpointAddress(in scope, at path, addr string) bool {
	if !srvname.Is(addr) {
		return checkSocketAddress(in, at, addr, dialable)
	}
	if err := srvname.Check(addr); err != nil {
		in.report(at, "%s; got %q", err, public(addr))
		return false
	}
	return true
}

// isLoopback reports whether only this host can reach addr.
func isLoopback(addr string) bool {
	if unixaddr.Is(addr) {
		return true
	}
	host := addr[:max(strings.LastIndexByte(addr, ':'), 0)]
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// allLocal reports whether there are servers and all of them are on loopback, which names below localhost are, too (RFC 6761
// section 6.3). A server is "host:port", with or without a scheme.
func allLocal(servers []string) bool {
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(server string) bool {
		_, addr, found := strings.Cut(server, "://")
		if !found {
			addr = server
		}
		host := strings.TrimSuffix(strings.ToLower(HostOf(addr)), ".")
		return host != "localhost" && !strings.HasSuffix(host, ".localhost") && !isLoopback(addr)
	})
}

// HostOf returns the host of "host:port" or "host", without brackets.
func HostOf(authority string) string {
	if rest, ok := strings.CutPrefix(authority, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	host, _, _ := strings.Cut(authority, ":")
	return host
}

// isHostName reports whether s can be the name in a certificate: a DNS name or an IP address.
func isHostName(s string) bool {
	isBad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:", c)
	}
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return !strings.ContainsFunc(s, isBad) && !slices.Contains(strings.Split(s, "."), "")
}

// Package hostname compares the names of hosts. A name has several spellings: upper case, the dot of
// the root at its end, escapes, several texts of an IPv6 address. Whoever looks for a name, in routes,
// lists or keys, compares the canonical form. What is sent on keeps its spelling.
//
// The canonical form has lower case, no dot at the end, no escape of a character that needs none (RFC
// 3986 section 6.2.2), and an IPv6 literal as RFC 5952 writes it, in brackets. An IPv4 address within
// IPv6 is that of IPv4. A name that no host can have, such as one that ends with two dots, stays.
package hostname

import (
	"bytes"
	"net/netip"
	"strconv"
)

// MaxLen is longer than any name that can be resolved (RFC 1035 section 2.3.4).
const MaxLen = 256

// maxText is the longest text of a name of MaxLen bytes: all are escaped.
const maxText = len("%41") * MaxLen

// Buffer has room for a canonical form.
type Buffer [MaxLen]byte

// Of returns the canonical form of the host of an authority, which is "host" or "host:port". It is
// part of authority if that has the form already, else of buf, and nil if it is longer than MaxLen.
// Only an IPv6 literal allocates.
func Of(buf *Buffer, authority []byte) []byte {
	host, _ := Split(authority)
	if len(host) > maxText {
		return nil
	}
	if !IsCanonical(host) {
		host = Append(buf[:0], host)
	}
	if len(host) > MaxLen {
		return nil
	}
	return host
}

// Name returns the canonical form of a host without a port, or of the end of hosts that begins with a
// dot, as a configuration has them.
func Name(host string) string {
	if IsCanonical([]byte(host)) {
		return host
	}
	return string(Append(nil, []byte(host)))
}

// Append appends the canonical form of a host without a port to dst.
func Append(dst, host []byte) []byte {
	if IsCanonical(host) {
		return append(dst, host...)
	}
	start := len(dst)
	if host[0] == '[' {
		return appendLiteral(dst, host)
	}
	escaped := bytes.IndexByte(host, '%') >= 0 && isEscaped(host)
	for i := 0; i < len(host); i++ {
		c := host[i]
		if escaped && c == '%' {
			if u := unhex(host[i+1])<<4 | unhex(host[i+2]); IsUnreserved(u) {
				c = u
				i += len("41")
			}
		}
		dst = append(dst, lower(c))
	}
	if endsInDot(dst[start:]) {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// AppendAuthority appends the canonical form of an authority to dst, without the default port of its
// scheme (RFC 9110 section 4.2.3).
func AppendAuthority(dst, authority []byte, isHTTPS bool) []byte {
	host, port := Split(authority)
	dst = Append(dst, host)
	if len(port) == 0 {
		return dst
	}
	standard := uint64(80)
	if isHTTPS {
		standard = 443
	}
	n, err := strconv.ParseUint(string(port), 10, 16)
	switch {
	case err != nil:
		return append(append(dst, ':'), port...)
	case n == standard:
		return dst
	}
	return strconv.AppendUint(append(dst, ':'), n, 10)
}

// Split divides an authority. The port is empty if there is none. The host may be an IPv6 literal.
func Split(authority []byte) (host, port []byte) {
	colon := bytes.LastIndexByte(authority, ':')
	if colon < 0 || bytes.IndexByte(authority[colon:], ']') >= 0 {
		return authority, nil
	}
	return authority[:colon], authority[colon+1:]
}

// Bare returns a canonical form without the brackets of an IPv6 literal, as a certificate and a
// resolver have it.
func Bare(host []byte) []byte {
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		return host[1 : n-1]
	}
	return host
}

// IsCanonical reports whether an authority is known to have the canonical form, and no port. It is so for
// most names as clients send them.
func IsCanonical(authority []byte) bool {
	for _, c := range authority {
		if unusual[c] {
			return false
		}
	}
	return !endsInDot(authority)
}

// unusual has the bytes with which a name may be spelled otherwise, and the one that begins a port.
var unusual = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZ%[:") {
		t[c] = true
	}
	return t
}()

// endsInDot reports whether a name has the dot of the root. The name before it must be one.
func endsInDot(host []byte) bool {
	n := len(host)
	return n > 1 && host[n-1] == '.' && host[n-2] != '.'
}

// appendLiteral appends "[address]". What is no address stays, in lower case.
func appendLiteral(dst, host []byte) []byte {
	n := len(host)
	if host[n-1] == ']' {
		if addr, err := netip.ParseAddr(string(host[1 : n-1])); err == nil && addr.Is6() && addr.Zone() == "" {
			if addr.Is4In6() {
				return addr.Unmap().AppendTo(dst)
			}
			return append(addr.AppendTo(append(dst, '[')), ']')
		}
	}
	for _, c := range host {
		dst = append(dst, lower(c))
	}
	return dst
}

// isEscaped reports whether each percent sign of a host begins an escape. Otherwise none is decoded:
// a decoded character could complete another escape.
func isEscaped(host []byte) bool {
	for i := 0; i < len(host); i++ {
		if host[i] != '%' {
			continue
		}
		if i+2 >= len(host) || unhex(host[i+1]) > 15 || unhex(host[i+2]) > 15 {
			return false
		}
		i += 2
	}
	return true
}

// IsUnreserved reports whether c and its escape mean the same in a host name or a path (RFC 3986 section 2.3).
func IsUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// unhex returns the value of a hexadecimal digit, or 16.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

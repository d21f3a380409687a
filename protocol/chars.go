package protocol

import "bytes"

// CharTable is a set of bytes.
type CharTable [256]bool

// Alphanumeric has the digits, the capitals and the small letters of ASCII, in this order.
const Alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	// TokenChar is tchar of RFC 9110 section 5.6.2.
	TokenChar = NewCharTable("!#$%&'*+-.^_`|~", Alphanumeric)

	// TargetChar is the set of bytes allowed in a request target: visible ASCII without '#', which
	// would begin a fragment. RFC 3986 allows fewer; see package http1.
	TargetChar = NewCharTable("!\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~", Alphanumeric)

	// hostChar is the set of bytes allowed in a registered name (RFC 3986 section 3.2.2).
	hostChar = NewCharTable("-._~!$&'()*+,;=%", Alphanumeric)

	// ipv6Char is the set of bytes allowed between the brackets of an IP literal. RFC 9110 has
	// neither zones nor future versions of addresses in Host.
	ipv6Char = NewCharTable("0123456789ABCDEFabcdef:.")
)

// NewCharTable returns the table of the bytes in sets.
func NewCharTable(sets ...string) (t CharTable) {
	for _, set := range sets {
		for i := range len(set) {
			t[set[i]] = true
		}
	}
	return t
}

// Span returns how many bytes at the start of b are in t.
func (t *CharTable) Span(b []byte) int {
	for i, c := range b {
		if !t[c] {
			return i
		}
	}
	return len(b)
}

// All reports whether all bytes of b are in t.
func (t *CharTable) All(b []byte) bool { return t.Span(b) == len(b) }

// DefinesContent reports whether a request with this method has Content-Length: 0 when it has no content (RFC 9110
// section 8.6).
func DefinesContent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT":
		return false
	}
	return true
}

// IsAuthority reports whether a is uri-host [ ":" port ] of RFC 9110 section 7.2, without
// user information. needPort demands a port, as for CONNECT. An empty host is valid: targets
// without an authority have one.
func IsAuthority(a []byte, needPort bool) bool {
	var i int // the end of the host
	if len(a) > 0 && a[0] == '[' {
		i = bytes.IndexByte(a, ']') + 1
		if i < len("[::]") || !ipv6Char.All(a[1:i-1]) {
			return false
		}
	} else {
		i = hostChar.Span(a)
	}
	if i == len(a) {
		return !needPort
	}
	port := a[i+1:]
	if a[i] != ':' || i == 0 || len(port) > 5 || needPort && len(port) == 0 {
		return false
	}
	n := 0
	for _, c := range port {
		if c-'0' > 9 {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}

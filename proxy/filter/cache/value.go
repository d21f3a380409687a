package cache

import (
	"encoding/binary"
	"math"

	"github.com/remora-proxy/remora/protocol"
)

// The value of an entry is the status, the number of headers, the lengths of the name and the value
// of each, all in 16 bits; then the names and values, and then the body.
const (
	prefixLen = 4
	lengths   = 4
)

// unstored are headers that belong to one connection or one response (RFC 9111 section 3.1), or
// that a response from the cache has anew.
var unstored = []string{
	"age", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "upgrade", "content-length", "proxy-authenticate",
	"proxy-authentication-info", "proxy-authorization", "x-request-id",
}

func isUnstored(name []byte) bool {
	for _, other := range unstored {
		if protocol.EqualFold(name, other) {
			return true
		}
	}
	return false
}

// appendHead appends the value of a response but for its body. ok is false if a header is too long.
func appendHead(dst []byte, res *protocol.Response) (head []byte, ok bool) {
	start, n := len(dst), 0
	dst = binary.LittleEndian.AppendUint16(dst, uint16(res.Status))
	dst = append(dst, 0, 0)
	for i := range res.Headers {
		h := &res.Headers[i]
		if isUnstored(h.Name) {
			continue
		}
		if len(h.Name) > math.MaxUint16 || len(h.Value) > math.MaxUint16 {
			return dst, false
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Name)))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Value)))
		n++
	}
	binary.LittleEndian.PutUint16(dst[start+2:], uint16(n))
	for i := range res.Headers {
		if h := &res.Headers[i]; !isUnstored(h.Name) {
			dst = append(append(dst, h.Name...), h.Value...)
		}
	}
	return dst, n <= math.MaxUint16
}

// read makes res the response with a value, which it aliases.
func read(value []byte, res *protocol.Response) {
	n := int(binary.LittleEndian.Uint16(value[2:]))
	res.Status = int(binary.LittleEndian.Uint16(value))
	table, at := value[prefixLen:prefixLen+n*lengths], prefixLen+n*lengths
	for ; len(table) > 0; table = table[lengths:] {
		name, end := at+int(binary.LittleEndian.Uint16(table)), 0
		end = name + int(binary.LittleEndian.Uint16(table[2:]))
		res.Headers = append(res.Headers, protocol.Header{Name: value[at:name:name], Value: value[name:end:end]})
		at = end
	}
	res.Body = value[at:len(value):len(value)]
}

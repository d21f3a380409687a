package link

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/remora-proxy/remora/protocol"
)

// A list of headers is its length, followed by name and value of each header as text. The name
// traceIndex is followed by 25 bytes instead of a value.

// appendText appends text as a reference to entry index-1, or as a literal if index is 0.
func appendText(dst, text []byte, index uint8) []byte {
	if index != 0 {
		return binary.AppendUvarint(dst, uint64(index-1)<<1|1)
	}
	return appendLiteral(dst, text)
}

func appendLiteral(dst, text []byte) []byte {
	if len(text) < 0x40 {
		dst = append(dst, byte(len(text)<<1))
	} else {
		dst = binary.AppendUvarint(dst, uint64(len(text))<<1)
	}
	return append(dst, text...)
}

// appendHeaders appends the headers of a message. The first traceparent is encoded in binary;
// traced reports whether there is one.
func (t *interner) appendHeaders(dst []byte, hs []protocol.Header) (_ []byte, traced bool) {
	dst = binary.AppendUvarint(dst, uint64(len(hs)))
	for i := range hs {
		h := &hs[i]
		if !traced && len(h.Name) == len(traceName) && string(h.Name) == traceName {
			start := len(dst)
			dst = binary.AppendUvarint(dst, traceIndex<<1|1)
			if dst, traced = appendTrace(dst, h.Value); traced {
				if h.NeverIndexed {
					t.never++
				}
				continue
			}
			dst = dst[:start]
		}
		dst = t.appendField(dst, h, &t.last[min(i, positions-1)])
	}
	return dst, traced
}

func (t *interner) appendTrailers(dst []byte, hs []protocol.Header) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(hs)))
	for i := range hs {
		dst = t.appendField(dst, &hs[i], &t.trailer)
	}
	return dst
}

func (t *interner) appendField(dst []byte, h *protocol.Header, last *hint) []byte {
	if h.NeverIndexed {
		t.never++
	}
	name := t.lookup(h.Name, last.name, kindName)
	last.name = name
	dst = appendText(dst, h.Name, name)
	if name == 0 || !t.entries[name-1].values || h.NeverIndexed {
		return appendLiteral(dst, h.Value)
	}
	last.value = t.lookup(h.Value, last.value, kindValue)
	return appendText(dst, h.Value, last.value)
}

func (c *cursor) headers(hs []protocol.Header, limit int, name textClass) []protocol.Header {
	n := c.varint()
	if n > uint64(limit) {
		c.reject(TooLarge)
		return hs
	}
	if n*2 > uint64(len(c.b)-c.at) { // each header has at least two bytes
		c.fail(ErrHead)
		return hs
	}
	for range n {
		v := c.varint()
		if v == traceIndex<<1|1 {
			hs = append(hs, c.traceparent())
			continue
		}
		var h protocol.Header
		var is textClass
		h.Name, _ = c.resolve(v, name)
		h.Value, is = c.resolve(c.varint(), classText)
		h.Valid = name == classToken && is&classValue != 0
		hs = append(hs, h)
	}
	return hs
}

// What no table may take (protocol.Header) is a list at the end of the head: its length, followed by positions that rise. 0
// stands for the method, the path and the authority of a request. The headers and then the trailers count from 1.

// appendNeverIndexed appends the list, whose length appendHeaders and appendTrailers have counted. target says whether it has the
// position 0.
func (t *interner) appendNeverIndexed(dst []byte, target bool, headers, trailers []protocol.Header) []byte {
	n := t.never
	t.never = 0
	if target {
		n++
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	if target {
		dst = append(dst, 0)
	}
	position := uint64(0)
	for _, hs := range [...][]protocol.Header{headers, trailers} {
		for i := range hs {
			if position++; hs[i].NeverIndexed {
				dst = binary.AppendUvarint(dst, position)
			}
		}
	}
	return dst
}

// neverIndexed reads the list if the head has it. target is nil if the head has no position 0.
func (c *cursor) neverIndexed(target *bool, headers, trailers []protocol.Header) {
	if c.at == len(c.b) {
		return
	}
	all := uint64(len(headers) + len(trailers))
	n, last := c.varint(), uint64(0)
	for i := range n {
		position := c.varint()
		switch {
		case position > all, position <= last && i > 0, position == 0 && target == nil:
			c.fail(ErrHead)
			return
		case position == 0:
			*target = true
		case position <= uint64(len(headers)):
			headers[position-1].NeverIndexed = true
		default:
			trailers[position-1-uint64(len(headers))].NeverIndexed = true
		}
		last = position
	}
}

var traceNameBytes = []byte(traceName)

func (c *cursor) traceparent() protocol.Header {
	b := c.take(traceBinary)
	if b == nil || c.trace == nil {
		c.fail(ErrHead)
		return protocol.Header{}
	}
	value := c.trace
	c.trace = nil
	formatTrace(value, b)
	c.spend(traceText)
	return protocol.Header{Name: traceNameBytes, Value: value, Valid: true}
}

// A traceparent header (W3C Trace Context, version 00) is 55 characters of text that differ in
// every request, so interning does not help. It travels as the 25 bytes that it encodes.
const (
	traceBinary = 16 + 8 + 1
	traceText   = 2 + 1 + 32 + 1 + 16 + 1 + 2
	traceName   = "traceparent"
)

// appendTrace appends the binary form of value if formatTrace can restore value exactly:
// version 00, lower-case digits.
func appendTrace(dst, value []byte) ([]byte, bool) {
	if len(value) != traceText || value[0] != '0' || value[1] != '0' ||
		value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return dst, false
	}
	start := len(dst)
	bad := byte(0)
	for _, part := range [3][]byte{value[3:35], value[36:52], value[53:55]} {
		for i := 0; i < len(part); i += 2 {
			hi, lo := unhex[part[i]], unhex[part[i+1]]
			bad |= hi | lo
			dst = append(dst, hi<<4|lo&0x0f)
		}
	}
	if bad&0xf0 != 0 {
		return dst[:start], false
	}
	return dst, true
}

// formatTrace writes the traceText characters of the traceBinary bytes b to dst.
func formatTrace(dst, b []byte) {
	copy(dst, "00-")
	hex.Encode(dst[3:], b[:16])
	dst[35] = '-'
	hex.Encode(dst[36:], b[16:24])
	dst[52] = '-'
	hex.Encode(dst[53:], b[24:traceBinary])
}

// unhex maps lower-case hexadecimal digits to their value, and other bytes to 0xf0.
var unhex = func() (t [256]byte) {
	for c := range t {
		t[c] = 0xf0
	}
	for i, c := range "0123456789abcdef" {
		t[c] = byte(i)
	}
	return t
}()

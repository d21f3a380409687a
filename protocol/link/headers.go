package link

import (
	"encoding/binary"

	"github.com/remora-proxy/remora/protocol"
)

// A list of headers is its count, then name and value of each as text. The name
// traceIndex is followed by 25 bytes instead of a value.

// appendText appends text as the entry index-1, or as a literal when it is 0.
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

// appendHeaders appends the headers of a message. A traceparent among them is put
// in binary, once; traced tells so.
func (t *interner) appendHeaders(dst []byte, hs []protocol.Header) (_ []byte, traced bool) {
	dst = binary.AppendUvarint(dst, uint64(len(hs)))
	for i := range hs {
		h := &hs[i]
		if !traced && len(h.Name) == len(traceName) && string(h.Name) == traceName {
			start := len(dst)
			dst = binary.AppendUvarint(dst, traceIndex<<1|1)
			if dst, traced = appendTrace(dst, h.Value); traced {
				continue
			}
			dst = dst[:start]
		}
		dst = t.appendField(dst, h, &t.last[min(i, positions-1)])
	}
	return dst, traced
}

// appendTrailers appends the trailers of a message.
func (t *interner) appendTrailers(dst []byte, hs []protocol.Header) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(hs)))
	for i := range hs {
		dst = t.appendField(dst, &hs[i], &t.trailer)
	}
	return dst
}

func (t *interner) appendField(dst []byte, h *protocol.Header, last *hint) []byte {
	name := t.lookup(h.Name, last.name, kindName)
	last.name = name
	dst = appendText(dst, h.Name, name)
	if name == 0 || !t.entries[name-1].values {
		return appendLiteral(dst, h.Value)
	}
	last.value = t.lookup(h.Value, last.value, kindValue)
	return appendText(dst, h.Value, last.value)
}

// headers reads a list into hs, which has at most limit headers then.
func (c *cursor) headers(hs []protocol.Header, limit int, name textClass) []protocol.Header {
	n := c.varint()
	if n > uint64(limit) {
		c.reject(TooLarge)
		return hs
	}
	if n*2 > uint64(len(c.b)) { // two bytes at least for each
		c.fail(ErrHead)
		return hs
	}
	for range n {
		v := c.varint()
		if v == traceIndex<<1|1 {
			hs = append(hs, c.traceparent())
			continue
		}
		h := protocol.Header{Name: c.resolve(v, name)}
		h.Value = c.text(classText)
		hs = append(hs, h)
	}
	return hs
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
	return protocol.Header{Name: traceNameBytes, Value: value}
}

package link

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// edges are numbers beside those at which a varint becomes longer.
var edges = func() (all []uint64) {
	for bits := 0; bits <= 63; bits += 7 {
		at := uint64(1) << bits
		all = append(all, at-1, at, at+1, at+at/2)
	}
	return append(all, 1<<64-1)
}()

// TestVarint: a number is read as it was written, in its shortest form only, and not before its end.
func TestVarint(t *testing.T) {
	for _, v := range edges {
		b := binary.AppendUvarint(nil, v)
		if n := varintLen(v); n != len(b) {
			t.Errorf("%d: a length of %d, want %d", v, n, len(b))
		}
		for i := range b {
			if _, n := parseVarint(b[:i]); n != 0 {
				t.Errorf("%d, cut to % x: length %d", v, b[:i], n)
			}
		}
		if got, n := parseVarint(append(b, 1)); got != v || n != len(b) {
			t.Errorf("% x: %d of %d bytes, want %d of %d", b, got, n, v, len(b))
		}
		long := slices.Clone(b)
		long[len(long)-1] |= 0x80
		if got, n := parseVarint(append(long, 0)); got != 0 || n >= 0 {
			t.Errorf("% x 00: %d of %d bytes", long, got, n)
		}
	}
}

// TestHeaderForm: a header has its numbers in their shortest form.
func TestHeaderForm(t *testing.T) {
	const most = maxWhole - headerRoom
	for _, id := range edges {
		for _, length := range []int{0, 1, 0x7f, 0x80, 0x81, most} {
			want := binary.AppendUvarint(binary.AppendUvarint([]byte{0x23}, id), uint64(length))
			b := appendHeader(nil, 0x23, id, length)
			if !bytes.Equal(b, want) {
				t.Errorf("stream %d, %d bytes: % x, want % x", id, length, b, want)
			}
			if f, n, err := parseHeader(b, most); f != (header{3, 0x20, id, length}) || n != len(b) || err != nil {
				t.Errorf("% x: %+v of %d bytes, %v", b, f, n, err)
			}
		}
	}
	if _, _, err := parseHeader(appendHeader(nil, 3, 1, most+1), most); err != ErrFrameSize {
		t.Errorf("a frame over the limit: %v", err)
	}
}

// TestTextLengths: texts of all lengths arrive.
func TestTextLengths(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for n := range 300 {
		wire(t, d, a, uint64(n+1), headers("x-length", string(bytes.Repeat([]byte{'v'}, n))))
	}
}

// bodyOf returns a request with a body of n bytes, and the bytes of its message.
func bodyOf(n int, batch bool) (req *protocol.Request, message int) {
	req = big(n)
	req.Batch = batch
	head := len(NewWriter().table().appendRequest(nil, req, 0))
	return req, varintLen(uint64(head)) + head + n
}

// TestWholeMessages: a message is sent in one frame if it fits. A batch message of more than batchWhole bytes of body is not.
func TestWholeMessages(t *testing.T) {
	const most = maxWhole - headerRoom
	_, head := bodyOf(0, false)
	for _, c := range []struct {
		body  int
		batch bool
		whole bool
	}{
		{most - head, false, true}, {most - head + 1, false, false},
		{batchWhole, true, true}, {batchWhole + 1, true, false}, {batchWhole + 1, false, true},
	} {
		d, a := newLink(t, Settings{}, ReaderLimits{})
		req, _ := bodyOf(c.body, c.batch)
		d.w.Request(1, req, 0, nil)
		b := d.w.Append(nil, 1<<20)
		var types []frameType
		for _, f := range frames(t, b) {
			if f.typ != frameDefine {
				types = append(types, f.typ)
			}
		}
		if whole := slices.Equal(types, []frameType{frameRequest}); whole != c.whole {
			t.Errorf("a body of %d bytes, batch %t: frames %v", c.body, c.batch, types)
		}
		feed(t, a, b)
		if a.h.requests[1] == nil {
			t.Errorf("a body of %d bytes, batch %t: did not arrive", c.body, c.batch)
		}
	}
}

// TestHeadLimit: a head may have as many bytes as the limit says, and no more. A reference counts as its text.
func TestHeadLimit(t *testing.T) {
	const limit = 10000 + 4<<10
	literal := func(n int) []byte { // a head of n bytes
		b := []byte{0, 0, 0, 0, 0, 6, 'G', 'E', 'T', 2, '/', 0, 1, 2, 'x'}
		text := n - len(b) - 3
		return append(binary.AppendUvarint(b, uint64(text)<<1), bytes.Repeat([]byte{'v'}, text)...)
	}
	references := func(n int) []byte { // a head with n bytes of text, of which 14,000 are two references
		b := []byte{0, 0, 0, 0, 0, 6, 'G', 'E', 'T', 2, '/', 0, 3, 2, 'x', 1, 2, 'x', 1, 2, 'x'}
		text := n - 2*7000 - len("GET/xxx")
		return append(binary.AppendUvarint(b, uint64(text)<<1), bytes.Repeat([]byte{'v'}, text)...)
	}
	define := bytes.Repeat([]byte{'d'}, 7000)
	for _, c := range []struct {
		name string
		head []byte
		ok   bool
	}{
		{"literal", literal(limit), true}, {"literal over", literal(limit + 1), false},
		{"references", references(limit), true}, {"references over", references(limit + 1), false},
	} {
		_, a := newLink(t, Settings{}, ReaderLimits{Header: 10000})
		feed(t, a, append(appendHeader(nil, uint8(frameDefine), 0, len(define)), define...))
		message := append(binary.AppendUvarint(nil, uint64(len(c.head))), c.head...)
		feed(t, a, append(appendHeader(nil, uint8(frameRequest), 1, len(message)), message...))
		if why := a.h.rejected[1]; (a.h.requests[1] != nil) != c.ok || (why == TooLarge) == c.ok {
			t.Errorf("%s: %.200s", c.name, fmt.Sprint(a.h.events))
		}
	}
}

// TestHeadLengths: heads arrive whole, wherever the second frame of them ends.
func TestHeadLengths(t *testing.T) {
	const most = maxWhole - headerRoom
	d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	for n := range 100 {
		req := big(10)
		value := bytes.Repeat([]byte{'v'}, 2*most-80+n)
		req.Headers = headers("x", string(value))
		id := uint64(n + 1)
		d.w.Request(id, req, 0, nil)
		exchange(t, d, a)
		if got := a.h.requests[id]; got == nil || !bytes.Equal(got.Headers[0].Value, value) || len(got.Body) != 10 {
			t.Fatalf("a value of %d bytes did not arrive", len(value))
		}
	}
}

// TestLongFrames: only DATA may be longer than maxWhole. It is received where Room says.
func TestLongFrames(t *testing.T) {
	const most = MaxFrame - headerRoom
	for typ := frameRequest; typ <= frameSkippable; typ++ {
		_, n, err := parseHeader(appendHeader(nil, uint8(typ), 1, maxWhole-headerRoom+1), most)
		if want := typ != frameData; (err == ErrFrameSize) != want || (n == 0) != want {
			t.Errorf("type %d: %d bytes, %v", typ, n, err)
		}
	}
	own := Settings{MaxFrame: MaxFrame, Window: MaxWindow}
	d, a := newLink(t, own, ReaderLimits{Buffers: &protocol.Buffers{Ahead: 1 << 20}})
	req := big(100 << 10)
	d.w.Request(1, req, 0, nil)
	wire := d.w.Append(nil, 1<<20)
	longest, inPlace := 0, 0
	for _, f := range frames(t, wire) {
		longest = max(longest, f.length)
	}
	for len(wire) > 0 {
		b := wire[:min(len(wire), 1000)]
		if room := a.r.Room(); room != nil {
			b = room[:copy(room, wire)]
			inPlace += len(b)
		}
		wire = wire[len(b):]
		feed(t, a, b)
	}
	if got := a.h.requests[1]; got == nil || !bytes.Equal(got.Body, req.Body) {
		t.Error("the request did not arrive")
	}
	if longest != most || inPlace < 80<<10 {
		t.Errorf("the longest frame has %d bytes; %d were received in their place", longest, inPlace)
	}
}

package http1

import (
	"math"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// TestChunkSizeOverflow checks that a size larger than the largest int64 is refused
// and does not wrap, even if no limit stops it earlier.
func TestChunkSizeOverflow(t *testing.T) {
	lim := &protocol.Limits{Header: 64, Headers: 4, Message: math.MaxInt64}
	for size, want := range map[string]error{
		"7FFFFFFFFFFFFFFF":  nil,
		"8000000000000000":  ErrMessageTooLarge,
		"8000000000000001":  ErrMessageTooLarge,
		"FFFFFFFFFFFFFFFF":  ErrMessageTooLarge,
		"10000000000000000": ErrBadChunkSize,
	} {
		var d Body
		var dst bytebufferpool.ByteBuffer
		d.Reset(&Head{Framing: Chunked}, lim)
		n, done, err := d.Decode([]byte(size+"\r\nabc"), &dst)
		if err != want || done || want == nil && (n != len(size)+5 || string(dst.B) != "abc") {
			t.Errorf("%s: %d, %v, %v", size, n, done, err)
		}
	}
}

// TestBodyBuffer checks the content of the buffer: the body, followed by the trailer
// section if there are trailer fields. A complete body consumes nothing more.
func TestBodyBuffer(t *testing.T) {
	for in, want := range map[string]string{
		"2\r\nhi\r\n0\r\n\r\n":         "hi",
		"2\r\nhi\r\n0\r\nA: b\r\n\r\n": "hiA: b\r\n\r\n",
	} {
		var d Body
		var dst bytebufferpool.ByteBuffer
		d.Reset(&Head{Framing: Chunked}, testLimits)
		if d.Done() {
			t.Fatal("done before the first byte")
		}
		if n, done, err := d.Decode([]byte(in), &dst); n != len(in) || !done || err != nil {
			t.Fatalf("%q: %d, %v, %v", in, n, done, err)
		}
		if string(dst.B) != want || d.Length() != 2 || !d.Done() || d.Close() != nil {
			t.Fatalf("%q: %q, %d", in, dst.B, d.Length())
		}
		if n, done, err := d.Decode([]byte("GET"), &dst); n != 0 || !done || err != nil || string(dst.B) != want {
			t.Fatalf("%q: %d, %v, %v, %q", in, n, done, err, dst.B)
		}
	}
}

// TestNoBody checks that a missing or empty body is done before the first byte.
func TestNoBody(t *testing.T) {
	for _, h := range []Head{{}, {Framing: FixedLength}} {
		var d Body
		d.Reset(&h, testLimits)
		n, done, err := d.Decode([]byte("GET"), nil)
		if n != 0 || !done || err != nil || !d.Done() || d.Close() != nil || d.Length() != 0 || len(d.Trailers(nil, nil)) != 0 {
			t.Errorf("%+v: %d, %v, %v", h, n, done, err)
		}
	}
}

// TestHeadReuse checks that a Head and a Request keep nothing of the message before.
func TestHeadReuse(t *testing.T) {
	var req protocol.Request
	var h Head
	for _, c := range acceptedRequests {
		h.Reset()
		if n, err := DecodeRequest([]byte(c.in+rest), &req, &h, testLimits); err != nil || n == 0 {
			t.Fatal(c.why, err)
		}
		var fresh outcome
		(feeder{lim: testLimits}).head([]byte(c.in), new(Head), &fresh)
		if got := flagText(&h); got != fresh.flags || headerText(req.Headers) != fresh.head[len(fresh.head)-len(headerText(req.Headers)):] {
			t.Errorf("%s: %q, %+v", c.why, got, fresh)
		}
	}
}

// TestResume: a body goes on behind what the buffer holds already.
func TestResume(t *testing.T) {
	for _, c := range []struct {
		h    Head
		n    int
		in   string
		used int
		done bool
	}{
		{Head{Framing: FixedLength, Length: 5}, 0, "helloGET", 5, true},
		{Head{Framing: FixedLength, Length: 5}, 2, "lloGET", 3, true},
		{Head{Framing: FixedLength, Length: 5}, 4, "oGET", 1, true},
		{Head{Framing: FixedLength, Length: 5}, 5, "GET", 0, true},
		{Head{Framing: FixedLength, Length: 5}, 2, "l", 1, false},
		{Head{Framing: UntilClose}, 2, "llo", 3, false},
	} {
		var d Body
		d.Reset(&c.h, testLimits)
		d.Resume(c.n)
		if whole := c.h.Framing == FixedLength && c.n == 5; d.Done() != whole {
			t.Errorf("%+v: done before the next byte: %t", c, !whole)
		}
		dst := bytebufferpool.ByteBuffer{B: []byte("hello"[:c.n])}
		n, done, err := d.Decode([]byte(c.in), &dst)
		if want := "hello"[:c.n+c.used]; n != c.used || done != c.done || err != nil || string(dst.B) != want || d.Length() != len(want) {
			t.Errorf("%+v: %d, %t, %v, %q", c, n, done, err, dst.B)
		}
		if has := d.HasLength(); has != (c.h.Framing == FixedLength) {
			t.Errorf("%+v: has a length: %t", c, has)
		}
	}
	for framing, want := range map[Framing]bool{NoBody: true, FixedLength: true, Chunked: false, UntilClose: false} {
		var d Body
		if d.Reset(&Head{Framing: framing}, testLimits); d.HasLength() != want {
			t.Errorf("framing %d has a length: %t", framing, !want)
		}
	}
}

// TestReserveBody: the memory for a body is that of what was read, or of all that is announced, and not of what follows it.
func TestReserveBody(t *testing.T) {
	for name, c := range map[string]struct {
		h           Head
		read        int
		least, most int // of the capacity
	}{
		"part of a long body":      {Head{Framing: FixedLength, Length: 100_000}, 30_000, 100_000, 1 << 20},
		"part of a chunked body":   {Head{Framing: Chunked}, 30_000, 30_000, 99_999},
		"part of the longest body": {Head{Framing: FixedLength, Length: protocol.NoLimit}, 30_000, 60_000, 1 << 20},
		"more than a short body":   {Head{Framing: FixedLength, Length: 10}, 30_000, 0, 29_999},
		"a body beyond all limits": {Head{Framing: FixedLength, Length: 1<<63 - 1}, 30_000, 30_000, 99_999},
	} {
		var buf bytebufferpool.ByteBuffer
		ReserveBody(&protocol.Buffers{Ahead: 1 << 20}, &buf, &c.h, make([]byte, c.read))
		if n := cap(buf.B); n < c.least || n > c.most {
			t.Errorf("%s: room for %d bytes, want %d to %d", name, n, c.least, c.most)
		}
	}
}

// TestRoom: a body of known length that is read to its place is decoded there.
func TestRoom(t *testing.T) {
	const size = 2 * protocol.LeastRoom
	for _, c := range []struct {
		head Head
		room int // for the body after its first byte
	}{
		{Head{Framing: FixedLength, Length: size}, size - 1}, {Head{Framing: FixedLength, Length: 10}, 0},
		{Head{Framing: Chunked}, 0}, {Head{Framing: UntilClose}, 0},
	} {
		var d Body
		d.Reset(&c.head, &protocol.Limits{Message: 1 << 20, Header: 1 << 10, Headers: 10})
		buf := &bytebufferpool.ByteBuffer{B: make([]byte, 0, 2*size)}
		if _, _, err := d.Decode([]byte("1"), buf); err != nil {
			t.Fatal(err)
		}
		room := d.Room(buf)
		if len(room) != c.room {
			t.Errorf("%+v: room for %d bytes, want %d", c.head, len(room), c.room)
		}
		if len(room) == 0 {
			continue
		}
		copy(room, "234")
		n, done, err := d.Decode(room[:3], buf)
		if n != 3 || done || err != nil || string(buf.B) != "1234" || len(d.Room(buf)) != size-4 {
			t.Errorf("decoded %d bytes to %q, done %t, %v; room for %d", n, buf.B, done, err, len(d.Room(buf)))
		}
		if n, done, err = d.Decode(d.Room(buf), buf); n != size-4 || !done || err != nil || d.Room(buf) != nil {
			t.Errorf("decoded %d bytes, done %t, %v", n, done, err)
		}
	}
}

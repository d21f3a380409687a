package http2

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestFrameHeads: a header has each bit of its parts where the protocol says.
func TestFrameHeads(t *testing.T) {
	for bit := range 31 {
		for _, length := range []int{0, 1, 0xff, 0x100, 0xffff, 0x10000, 1<<24 - 1} {
			want := frame{length, frameHeaders, 0xa5, 1 << bit}
			b := appendFrame(nil, want.length, want.typ, want.flags, want.id)
			if got := binary.BigEndian.Uint64(b); got != uint64(length)<<40|uint64(want.typ)<<32|0xa5<<24|uint64(want.id)>>8 || b[8] != byte(want.id) {
				t.Errorf("%+v: % x", want, b)
			}
			if got := parseFrame(b); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			b[5] |= 0x80 // reserved
			if got := parseFrame(b); got != want {
				t.Errorf("with the reserved bit: %+v, want %+v", got, want)
			}
		}
	}
}

// TestRequestLengths: which requests say how long their content is.
func TestRequestLengths(t *testing.T) {
	for _, c := range []struct {
		method, body, trailer, contentType string
		want                               int64
	}{
		{"GET", "", "", "a/b", -1}, {"GET", "x", "", "a/b", 1}, {"POST", "", "", "a/b", 0}, {"POST", "xy", "", "a/b", 2},
		{"POST", "x", "a: b", "a/b", -1}, {"POST", "", "a: b", "a/b", -1}, {"POST", "x", "", "application/grpc", -1},
	} {
		p := newPair(t, Options{}, Options{})
		length := int64(-2)
		p.server.onRequest = func(st *Stream, _ bool) { length = st.Length() }
		req := &protocol.Request{Method: []byte(c.method), Path: []byte("/"), Authority: []byte("h"), Headers: fields("content-type: " + c.contentType), Body: []byte(c.body)}
		if c.trailer != "" {
			req.Trailers = fields(c.trailer)
		}
		p.client.c.Request(req, "http", nil)
		if err := p.run(); err != nil || length != c.want {
			t.Errorf("%+v: length %d, %v", c, length, err)
		}
	}
}

// TestResponseLengths: which responses say how long their content is, or would be.
func TestResponseLengths(t *testing.T) {
	for _, c := range []struct {
		method   string
		status   int
		declared int64
		body     string
		want     int64
	}{
		{"GET", 200, -1, "", 0}, {"GET", 200, -1, "x", 1}, {"GET", 204, -1, "", -1}, {"GET", 204, 7, "x", -1},
		{"GET", 304, -1, "", -1}, {"GET", 304, 0, "", 0}, {"GET", 304, 7, "", 7}, {"GET", 304, -1, "x", 1},
		{"HEAD", 200, -1, "", -1}, {"HEAD", 200, 0, "", 0}, {"HEAD", 200, 7, "", 7}, {"HEAD", 200, -1, "x", 1}, {"HEAD", 200, 7, "x", 7},
	} {
		p := newPair(t, Options{}, Options{})
		p.server.onRequest = func(st *Stream, _ bool) {
			p.server.c.Respond(st, &protocol.Response{Status: c.status, DeclaredLength: c.declared, Body: []byte(c.body)}, nil)
		}
		id := p.client.c.Request(&protocol.Request{Method: []byte(c.method), Path: []byte("/"), Authority: []byte("h")}, "http", nil).ID()
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		body := c.body
		if c.method == "HEAD" || c.status != 200 {
			body = ""
		}
		if m := p.client.got[id]; !m.end || m.why != nil || m.res.DeclaredLength != c.want || string(m.body) != body {
			t.Errorf("%+v: length %d, body %q, end %t, %v", c, m.res.DeclaredLength, m.body, m.end, m.why)
		}
	}
}

// TestPiecesInTurn: a piece does not overtake the DATA of other streams, and the last piece of a message ends it.
func TestPiecesInTurn(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	long := typical()
	long.Body = pattern(40_000)
	p.c.Request(long, "http", nil)
	st := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, []byte("piece"))
	p.c.Finish(st, nil)
	alone := p.c.RequestHead(typical(), "http", -1, false)
	p.c.Output(1 << 20)
	p.c.Send(alone, []byte("another"))
	p.c.Finish(alone, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	if got := l.frames(t); !slices.Equal(got, []string{"DATA another END"}) {
		t.Errorf("a piece alone: %.100q", got)
	}

	p, l = newClient(t, Options{}), newLibrary()
	p.c.Output(1 << 20) // the preface
	p.c.Request(long, "http", nil)
	st = p.c.RequestHead(typical(), "http", -1, false)
	p.c.Send(st, []byte("piece"))
	p.c.Finish(st, nil)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, f := range l.frames(t) {
		if strings.HasPrefix(f, "DATA ") {
			order = append(order, f[:min(len(f), 14)])
		}
	}
	if len(order) != 4 || order[0] == "DATA piece END" || !slices.Contains(order, "DATA piece END") {
		t.Errorf("beside another: %q", order)
	}
}

// TestDataCounts: DATA with content is useful work, and no other.
func TestDataCounts(t *testing.T) {
	p, l := receiver(t, 1<<16, true)
	l.WriteData(1, false, []byte("x"))
	l.WriteData(1, false, nil)
	l.WriteDataPadded(1, false, nil, make([]byte, 10))
	l.WriteDataPadded(1, false, []byte("y"), make([]byte, 10))
	updates(t, p, l)
	if n := p.c.floods.data; n != 2 {
		t.Errorf("%d frames count, want 2", n)
	}
}

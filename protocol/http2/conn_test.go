package http2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

func typical() *protocol.Request {
	return &protocol.Request{
		Method: []byte("POST"), Path: []byte("/echo.Echo/Unary"), Authority: []byte("echo.default.svc:8080"),
		Headers: fields("Content-Type: application/grpc", "te: trailers", "user-agent: grpc-go/1.83.2",
			"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "grpc-timeout: 998765u",
			"x-request-id: 7b0c7f6c-1f0e-4f6e-8d2b-3f2f1c9d0a11", "grpc-accept-encoding: gzip", "authorization: Bearer abcdefghijklmnop"),
		Body: bytes.Repeat([]byte("r"), 300),
	}
}

func typicalResponse() *protocol.Response {
	return &protocol.Response{
		Status: 200, DeclaredLength: -1,
		Headers:  fields("content-type: application/grpc", "date: Tue, 24 Nov 2026 17:00:00 GMT", "server: echo"),
		Body:     bytes.Repeat([]byte("s"), 200),
		Trailers: fields("grpc-status: 0", "grpc-message: "),
	}
}

// TestUnary sends whole messages of many sizes.
func TestUnary(t *testing.T) {
	for _, size := range []int{0, 1, 300, 5000, 16 << 10, 70_000, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := newPair(t, Options{}, Options{})
			o, so := &owner{t: t}, &owner{t: t}
			p.server.onRequest = func(st *Stream, _ bool) {
				res := typicalResponse()
				res.Body = bytes.Repeat([]byte("s"), size)
				p.server.c.Respond(st, res, so)
			}
			req := typical()
			req.Body = bytes.Repeat([]byte("r"), size)
			st := p.client.c.Request(req, "http", o)
			id := st.ID()
			if err := p.run(); err != nil {
				t.Fatal(err)
			}
			if o.released != 1 || so.released != 1 {
				t.Errorf("released %d, %d", o.released, so.released)
			}
			got := p.server.got[id]
			want := "content-type: application/grpc|user-agent: grpc-go/1.83.2|traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01|grpc-timeout: 998765u|x-request-id: 7b0c7f6c-1f0e-4f6e-8d2b-3f2f1c9d0a11|grpc-accept-encoding: gzip|!authorization: Bearer abcdefghijklmnop"
			if h := strings.Join(lines(got.req.Headers), "|"); h != want {
				t.Errorf("headers\n%s, want\n%s", h, want)
			}
			if string(got.req.Method) != "POST" || string(got.req.Path) != "/echo.Echo/Unary" || string(got.req.Authority) != "echo.default.svc:8080" {
				t.Errorf("request %s", got.req.Path)
			}
			if !bytes.Equal(got.body, req.Body) || !got.over || !got.end {
				t.Errorf("%d bytes, end %t, over %t", len(got.body), got.end, got.over)
			}
			back := p.client.got[id]
			if len(back.body) != size || back.res.Status != 200 || strings.Join(back.trailers, "|") != "grpc-status: 0|grpc-message: " || !back.over {
				t.Errorf("%d bytes, %d, trailers %q, over %t", len(back.body), back.res.Status, back.trailers, back.over)
			}
			if p.client.c.StreamCount() != 0 || p.server.c.StreamCount() != 0 || p.client.c.Buffered() != 0 || p.server.c.Buffered() != 0 {
				t.Errorf("open %d %d, buffered %d %d", p.client.c.StreamCount(), p.server.c.StreamCount(), p.client.c.Buffered(), p.server.c.Buffered())
			}
		})
	}
}

// TestPieces streams both ways at once, in pieces.
func TestPieces(t *testing.T) {
	p := newPair(t, Options{}, Options{})
	pump := func(c *Conn, left *[]byte, trailers []protocol.Header) func(*Stream) {
		return func(st *Stream) {
			n := c.Send(st, (*left)[:min(len(*left), 100_000)])
			for n > 0 && len(*left) > n {
				*left = (*left)[n:]
				n = c.Send(st, (*left)[:min(len(*left), 100_000)])
			}
			if *left = (*left)[n:]; len(*left) == 0 {
				c.Finish(st, trailers)
			}
		}
	}
	up, down := bytes.Repeat([]byte("0123456789"), 50_000), bytes.Repeat([]byte("abcdefghij"), 70_000)
	wantUp, wantDown := up, down
	p.client.onWritable = pump(p.client.c, &up, fields("x-sum: 1"))
	p.server.onWritable = pump(p.server.c, &down, nil)
	st := p.client.c.RequestHead(typical(), "http", -1, false)
	id := st.ID()
	p.client.onWritable(st)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	sst := p.server.c.streams.get(id)
	if sst == nil {
		t.Fatal("no stream")
	}
	p.server.c.ResponseHead(sst, typicalResponse())
	p.server.onWritable(sst)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if got := p.server.got[id]; !bytes.Equal(got.body, wantUp) || !got.over || strings.Join(got.trailers, "") != "x-sum: 1" {
		t.Errorf("server: %d bytes, over %t, trailers %q", len(got.body), got.over, got.trailers)
	}
	if got := p.client.got[id]; !bytes.Equal(got.body, wantDown) || !got.over {
		t.Errorf("client: %d bytes, over %t", len(got.body), got.over)
	}
	if p.client.got[id].writable == 0 {
		t.Error("never blocked")
	}
}

// TestKeep: after Keep the caller may change the memory of a request, of which the peer still gets the rest. Nothing
// is kept at the end.
func TestKeep(t *testing.T) {
	for _, c := range []struct {
		size     int
		trailers []protocol.Header
	}{{100 << 10, nil}, {100 << 10, fields("a: 1")}, {1<<16 + 1, nil}} {
		trailers := c.trailers
		p := newPair(t, Options{}, Options{})
		p.server.hold = true
		body := bytes.Repeat([]byte("x"), c.size)
		st := p.client.c.Request(&protocol.Request{Method: []byte("POST"), Path: []byte("/"), Authority: []byte("a"), Body: body, Trailers: trailers}, "http", nil)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		left := st.Unsent()
		if left == 0 || left == len(body) {
			t.Fatalf("%d bytes of %d are unsent", left, len(body))
		}
		for range 2 {
			p.client.c.Keep(st)
		}
		clear(body)
		for i := range trailers {
			clear(trailers[i].Value)
		}
		if n := p.client.c.Encoded(); st.Unsent() != left || n < left {
			t.Errorf("%d bytes unsent, %d in memory; want %d", st.Unsent(), n, left)
		}
		p.server.hold = false
		p.server.c.Consumed(p.server.c.streams.get(1), len(body)-left)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		m := p.server.got[1]
		if !m.end || len(m.body) != len(body) || bytes.Count(m.body, []byte("x")) != len(body) || len(m.trailers) != len(trailers) {
			t.Errorf("end %t, %d bytes, trailers %q", m.end, len(m.body), m.trailers)
		}
		for _, got := range m.trailers {
			if got != "a: 1" {
				t.Errorf("trailer %q", got)
			}
		}
		if b, k := p.client.c.w.held, p.client.c.w.kept; b != 0 || k != 0 {
			t.Errorf("%d bytes held, %d kept at the end", b, k)
		}
	}
}

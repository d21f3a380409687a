package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
)

// library is a peer that speaks with the Framer of golang.org/x/net.
type library struct {
	*xhttp2.Framer
	in, out bytes.Buffer
	enc     *hpack.Encoder
	block   bytes.Buffer
}

func newLibrary() *library {
	l := &library{}
	l.Framer = xhttp2.NewFramer(&l.out, &l.in)
	l.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	l.enc = hpack.NewEncoder(&l.block)
	return l
}

// headers writes HEADERS with fields of "name: value" lines. A line that begins with ! is never indexed.
func (l *library) headers(id uint32, end bool, lines ...string) {
	l.block.Reset()
	for _, line := range lines {
		line, never := strings.CutPrefix(line, "!")
		at := strings.Index(line[1:], ": ") + 1
		l.enc.WriteField(hpack.HeaderField{Name: line[:at], Value: line[at+2:], Sensitive: never})
	}
	l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: l.block.Bytes(), EndStream: end, EndHeaders: true})
}

// blocks writes a header block in frames, as many as it takes. The message ends with it.
func (l *library) blocks(id uint32, block []byte) {
	n := min(len(block), maxFrame)
	l.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: true, EndHeaders: n == len(block)})
	for n < len(block) {
		from := n
		n = min(len(block), from+maxFrame)
		l.WriteContinuation(id, n == len(block), block[from:n])
	}
}

// feed gives p what was written, and the library what p sends.
func (l *library) feed(p *peer) error {
	err := p.c.Feed(l.out.Bytes())
	l.out.Reset()
	for p.c.Ready() {
		l.in.Write(p.c.Output(1 << 20))
	}
	return err
}

// frames reads all frames that have come.
func (l *library) frames(t *testing.T) (all []string) {
	t.Helper()
	for {
		f, err := l.ReadFrame()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, show(f))
	}
}

func show(f xhttp2.Frame) string {
	switch f := f.(type) {
	case *xhttp2.MetaHeadersFrame:
		s := "HEADERS"
		for _, h := range f.Fields {
			s += " " + h.Name + "=" + h.Value
		}
		return s + endOf(f.StreamEnded())
	case *xhttp2.DataFrame:
		return "DATA " + string(f.Data()) + endOf(f.StreamEnded())
	case *xhttp2.RSTStreamFrame:
		return "RST " + f.ErrCode.String()
	case *xhttp2.GoAwayFrame:
		return "GOAWAY " + f.ErrCode.String()
	}
	return f.Header().Type.String()
}

func endOf(end bool) string {
	if end {
		return " END"
	}
	return ""
}

// TestFramerClient serves a client that is made of the library's Framer.
func TestFramerClient(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	p.onRequest = func(st *Stream, _ bool) { p.c.Respond(st, typicalResponse(), nil) }
	l.out.WriteString(xhttp2.ClientPreface)
	l.WriteSettings()
	for range 3 {
		id := p.c.streams.latest + 2 | 1
		l.headers(id, false, ":method: POST", ":scheme: http", ":path: /a.B/C", ":authority: h", "content-type: application/grpc", "te: trailers", "x-long: "+strings.Repeat("é~Ab", 100))
		l.WriteDataPadded(id, true, []byte("hello"), make([]byte, 100))
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if got := p.got[id]; string(got.body) != "hello" || string(got.req.Path) != "/a.B/C" || len(got.req.Headers) != 2 {
			t.Errorf("%q %v", got.body, lines(got.req.Headers))
		}
		got := l.frames(t)
		if n := len(got); n < 3 || got[n-3] != "HEADERS :status=200 content-type=application/grpc date=Tue, 24 Nov 2026 17:00:00 GMT server=echo" ||
			got[n-2] != "DATA "+strings.Repeat("s", 200) || got[n-1] != "HEADERS grpc-status=0 grpc-message= END" {
			t.Errorf("%q", got)
		}
	}
}

// TestFramerServer calls a server that is made of the library's Framer.
func TestFramerServer(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.WriteSettings()
	for i := range 3 {
		st := p.c.Request(typical(), "https", nil)
		id := st.ID()
		l.feed(p)
		if i == 0 {
			if b := l.in.Next(len(xhttp2.ClientPreface)); string(b) != xhttp2.ClientPreface {
				t.Fatalf("%q", b)
			}
		}
		got := l.frames(t)
		want := "HEADERS :method=POST :scheme=https :path=/echo.Echo/Unary :authority=echo.default.svc:8080 content-type=application/grpc te=trailers user-agent=grpc-go/1.83.2 " +
			"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 grpc-timeout=998765u x-request-id=7b0c7f6c-1f0e-4f6e-8d2b-3f2f1c9d0a11 grpc-accept-encoding=gzip authorization=Bearer abcdefghijklmnop"
		if !strings.Contains(strings.Join(got, "|"), want+"|DATA "+strings.Repeat("r", 300)+" END") {
			t.Errorf("%q", got)
		}
		l.headers(id, false, ":status: 103", "link: </a>")
		l.headers(id, false, ":status: 200", "content-length: 2", "content-type: text/plain")
		l.WriteData(id, false, []byte("ok"))
		l.headers(id, true, "grpc-status: 7")
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if m := p.got[id]; string(m.body) != "ok" || m.res.Status != 200 || len(m.trailers) != 1 || !m.over || m.res.DeclaredLength != 2 {
			t.Errorf("%q %d %q", m.body, m.res.Status, m.trailers)
		}
	}
}

// pipe connects a peer with a connection of the library until it is closed.
func pipe(p *peer, conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 32<<10)
	for {
		for p.c.Ready() {
			if _, err := conn.Write(p.c.Output(32 << 10)); err != nil {
				return
			}
		}
		n, err := conn.Read(b)
		if err != nil || p.c.Feed(b[:n]) != nil {
			return
		}
	}
}

// TestLibraryTransport serves the library's client.
func TestLibraryTransport(t *testing.T) {
	p := newServer(t, Options{Window: 1 << 20})
	p.onRequest = func(st *Stream, _ bool) {
		m := p.got[st.ID()]
		p.c.Respond(st, &protocol.Response{Status: 201, Headers: fields("X-Method: " + string(m.req.Method)), Body: bytes.Clone(m.body), DeclaredLength: -1}, nil)
	}
	ln := must.Listen(t)
	go func() {
		if conn, err := ln.Accept(); err == nil {
			pipe(p, conn)
		}
	}()
	tr := &http.Transport{Protocols: cleartext()}
	defer tr.CloseIdleConnections()
	for _, size := range []int{0, 10, 100_000, 1_000_000} {
		body := strings.Repeat("x", size)
		res, got := must.Post(t, &http.Client{Transport: tr}, "http://"+ln.Addr().String()+"/p?q", "text/plain", strings.NewReader(body))
		if got != body || res.StatusCode != 201 || res.Header.Get("X-Method") != "POST" {
			t.Errorf("%d bytes: got %d, status %d", size, len(got), res.StatusCode)
		}
	}
}

// cleartext are the protocols of a connection that begins with HTTP/2.
func cleartext() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// TestLibraryServer calls the library's server.
func TestLibraryServer(t *testing.T) {
	ln := must.Listen(t)
	server := &http.Server{Protocols: cleartext(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Write(body)
		w.Header().Set("X-Sum", fmt.Sprint(len(body), " ", r.Host))
	})}
	go server.Serve(ln)
	defer server.Close()
	conn := must.Dial(t, "tcp", ln.Addr().String())
	p := newClient(t, Options{})
	left := 0
	for _, size := range []int{0, 10, 100_000, 1_000_000} {
		req := typical()
		req.Body = pattern(size)
		id := p.c.Request(req, "http", nil).ID()
		left++
		p.onRequest = func(st *Stream, _ bool) {
			if m := p.got[id]; st.ID() == id && (!bytes.Equal(m.body, req.Body) || m.trailers[0] != fmt.Sprint("x-sum: ", size, " echo.default.svc:8080")) {
				t.Errorf("%d bytes: got %d, %q", size, len(m.body), m.trailers)
			}
			left--
		}
		exchange(t, p, conn, func() bool { return left == 0 })
	}
}

// exchange connects p with conn until done.
func exchange(t *testing.T, p *peer, conn net.Conn, done func() bool) {
	b := make([]byte, 32<<10)
	for {
		for p.c.Ready() {
			must.Write(t, conn, p.c.Output(32<<10))
		}
		if done() {
			return
		}
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.c.Feed(b[:n]); err != nil {
			t.Fatal(err)
		}
	}
}

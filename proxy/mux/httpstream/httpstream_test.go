package httpstream_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

var lim = &protocol.Limits{Header: 4 << 10, Headers: 32, Message: protocol.NoLimit}

// message is what a Reader has found.
type message struct {
	head, body, trailers string
	noBody, ends         bool // End follows the head; End was found
}

func (m message) String() string {
	return fmt.Sprintf("%s|%q|%s|%t %t", m.head, m.body, m.trailers, m.noBody, m.ends)
}

func fields(hs []protocol.Header) string {
	var b strings.Builder
	for _, h := range hs {
		fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
	}
	return b.String()
}

// collect calls Next until nothing more was written. It consumes pieces in parts.
func collect(r *httpstream.Reader, into *message, part func(n int) int) httpstream.Event {
	for {
		e := r.Next()
		switch e {
		case httpstream.Interim:
			into.head += fmt.Sprintf("%d%s,", r.Response.Status, fields(r.Response.Headers))
		case httpstream.Head:
			into.head += fmt.Sprintf("%s %s %d length %d%s%s", r.Request.Method, r.Request.Path, r.Response.Status, r.Length, fields(r.Request.Headers), fields(r.Response.Headers))
			into.noBody = r.NoBody()
			if n := r.Response.DeclaredLength; n != r.Length && r.Response.Status > 0 {
				into.head += fmt.Sprintf(" declared %d", n)
			}
		case httpstream.Piece:
			n := part(len(r.Piece()))
			into.body += string(r.Piece()[:n])
			r.Consume(n)
		case httpstream.End:
			into.ends, into.trailers = true, fields(r.Trailers())
			return e
		default:
			return e
		}
	}
}

func all(n int) int { return n }

// TestReader: texts, whole and byte by byte, and how they end.
func TestReader(t *testing.T) {
	for _, c := range []struct {
		name, text string
		request    bool
		toHead     bool
		want       string
		event      httpstream.Event // after the text; Pending if the message goes on
	}{
		{name: "length", text: "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\nhello",
			want: `  200 length 5 A=b|"hello"||false true`, event: httpstream.End},
		{name: "chunks and trailers", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA\r\nlo, world!\r\n0\r\ngrpc-status: 0\r\n\r\n",
			want: `  200 length -1|"hello, world!"| grpc-status=0|false true`, event: httpstream.End},
		{name: "interim responses", text: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
			want: `100,103 Link=x,  204 length -1|""||true true`, event: httpstream.End},
		{name: "head", text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", toHead: true,
			want: `  200 length 5|""||true true`, event: httpstream.End},
		{name: "empty", text: "HTTP/1.1 200 OK\r\ngrpc-status: 5\r\nContent-Length: 0\r\n\r\n",
			want: `  200 length 0 grpc-status=5|""||true true`, event: httpstream.End},
		{name: "request", text: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", request: true,
			want: `POST /a 0 length -1|"x"||false true`, event: httpstream.End},
		{name: "request without body", text: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", request: true,
			want: `GET /a 0 length -1|""||true true`, event: httpstream.End},
		{name: "incomplete", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
			want: `  200 length -1|"hel"||false false`, event: httpstream.Pending},
		{name: "until close", text: "HTTP/1.1 200 OK\r\n\r\nhello",
			want: `  200 length -1|"hello"||false false`, event: httpstream.Pending},
		{name: "no HTTP", text: "hello", want: `|""||false false`, event: httpstream.Broken},
		{name: "no HTTP from the first byte", text: "\x00", want: `|""||false false`, event: httpstream.Broken},
		{name: "bad chunk", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
			want: `  200 length -1|""||false false`, event: httpstream.Broken},
		{name: "upgrade", text: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", request: true,
			want: `|""||false false`, event: httpstream.Broken},
		{name: "long head", text: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", lim.Header), want: `|""||false false`, event: httpstream.Broken},
	} {
		for _, step := range []int{1, 7, len(c.text)} {
			p := &proxytest.Pipe{}
			var r httpstream.Reader
			if c.request {
				r.InitRequest(p, lim)
			} else {
				r.InitResponse(p, lim, c.toHead)
			}
			var got message
			event := httpstream.Pending
			for text := c.text; len(text) > 0 && event == httpstream.Pending; {
				n := min(step, len(text))
				p.Out = append(p.Out, text[:n]...)
				text = text[n:]
				event = collect(&r, &got, all)
			}
			if event != c.event || got.String() != c.want {
				t.Errorf("%s in steps of %d: event %d, %s\nwant %d, %s", c.name, step, event, got, c.event, c.want)
			}
			end := httpstream.Broken
			if c.event == httpstream.End || c.name == "until close" {
				end = httpstream.End
			}
			_ = proxytest.PipeSocket{Pipe: p}.Close()
			if event = r.Next(); event != end || r.Next() != end {
				t.Errorf("%s: event %d after the goroutine has closed, want %d", c.name, event, end)
			}
		}
	}
}

// TestConsume: what is left of a piece is the piece, at once and after Next.
func TestConsume(t *testing.T) {
	p := &proxytest.Pipe{Out: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")}
	var r httpstream.Reader
	r.InitResponse(p, lim, false)
	_, e := r.Next(), r.Next()
	if proxytest.Equal(t, "piece", string(r.Piece()), "hello"); e != httpstream.Piece {
		t.Fatalf("event %d", e)
	}
	r.Consume(2)
	proxytest.Equal(t, "rest", string(r.Piece()), "llo")
	e = r.Next()
	proxytest.Equal(t, "rest after Next", string(r.Piece()), "llo")
	r.Consume(3)
	proxytest.Equal(t, "events", [2]httpstream.Event{e, r.Next()}, [2]httpstream.Event{httpstream.Piece, httpstream.End})
}

// TestReaderReset: what a goroutine has written before a reset is no message, unless it is complete.
func TestReaderReset(t *testing.T) {
	for head, event := range map[string]httpstream.Event{"": httpstream.Broken, "Content-Length: 5\r\n": httpstream.End} {
		p := &proxytest.Pipe{Out: []byte("HTTP/1.1 200 OK\r\n" + head + "\r\nhello")}
		var r httpstream.Reader
		r.InitResponse(p, lim, false)
		var m message
		collect(&r, &m, all)
		proxytest.PipeSocket{Pipe: p}.Reset()
		if e := r.Next(); e != event || m.body != "hello" || r.Next() != event {
			t.Errorf("event %d after %q, want %d", e, m.body, event)
		}
	}
}

// TestReaderMemory: the pipe counts what a Reader keeps of a head and of trailers, as long as that is kept.
func TestReaderMemory(t *testing.T) {
	p := &proxytest.Pipe{}
	var r httpstream.Reader
	r.InitResponse(p, lim, false)
	text := strings.Repeat("x", 3<<10)
	var m message
	for _, c := range []struct {
		written  string
		from, to int // bytes that are held afterwards
	}{
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: " + text, len(text), len(text) + 200},
		{"\r\n\r\n", 0, 0},
		{"2\r\nhi\r\n", 0, 0},
		{"0\r\nB: " + text, len(text), len(text) + 200},
		{"\r\n\r\n", len(text), len(text) + 200},
	} {
		p.Out = append(p.Out, c.written...)
		collect(&r, &m, all)
		if p.Held < c.from || p.Held > c.to {
			t.Errorf("%d bytes held after %.20q", p.Held, c.written)
		}
	}
	if !m.ends {
		t.Errorf("the message does not end: %v", m)
	}
	if p.Close(nil); p.Held != 0 {
		t.Errorf("%d bytes held at the end", p.Held)
	}
}

// TestReaderHeaders: the pipe counts the fields of a head, too, until the body is read.
func TestReaderHeaders(t *testing.T) {
	const fields, each = 30, 48 // a field is two slices, of 24 bytes each
	for _, start := range []string{"GET / HTTP/1.1\r\nHost: h\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"} {
		p := &proxytest.Pipe{Out: []byte(start + strings.Repeat("a: b\r\n", fields) + "\r\n")}
		var r httpstream.Reader
		if strings.HasPrefix(start, "GET") {
			r.InitRequest(p, lim)
		} else {
			r.InitResponse(p, lim, false)
		}
		if e := r.Next(); e != httpstream.Head || p.Held < fields*each {
			t.Errorf("event %d, %d bytes held of %d fields", e, p.Held, fields)
		}
		if e := r.Next(); e != httpstream.End || p.Held != 0 {
			t.Errorf("event %d, %d bytes held in the end", e, p.Held)
		}
	}
}

// TestFailure: a response of a sidecar can be told from one of an application.
func TestFailure(t *testing.T) {
	for text, want := range map[string]string{"X-Remora-Error: upstream-connect\r\n": "upstream-connect", "": ""} {
		p := &proxytest.Pipe{Out: []byte("HTTP/1.1 503 Service Unavailable\r\n" + text + "Content-Length: 0\r\n\r\n")}
		var r httpstream.Reader
		r.InitResponse(p, lim, false)
		if e := r.Next(); e != httpstream.Head || string(r.Failure()) != want {
			t.Errorf("event %d, failure %q; want %q", e, r.Failure(), want)
		}
	}
}

// TestWriterTaken: the bytes of framing are never granted to the peer, those of the body all are.
func TestWriterTaken(t *testing.T) {
	p := &proxytest.Pipe{}
	socket := proxytest.PipeSocket{Pipe: p}
	var w httpstream.Writer
	w.InitResponse(p)
	for _, status := range []int{103, 101, 100} { // 101 can't be sent
		w.Interim(&protocol.Response{Status: status, DeclaredLength: -1})
	}
	if text := string(p.In); text != "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" {
		t.Errorf("interim responses: %q", text)
	}
	if !w.Response(&protocol.Response{Status: 200, DeclaredLength: -1}, false, false) {
		t.Fatal("a head is refused")
	}
	sent, granted := 0, 0
	for range 100 {
		w.Data([]byte("hello"))
		sent += 5
		_, _ = io.ReadFull(socket, make([]byte, 9))
		if granted += w.Taken(); granted > sent {
			t.Fatalf("%d granted of %d", granted, sent)
		}
	}
	w.End(nil)
	proxytest.ReadArrived(t, socket)
	if granted += w.Taken(); granted != sent {
		t.Errorf("%d granted of %d", granted, sent)
	}
}

// TestWriterResponse: each response gets the framing that its decoder reads.
func TestWriterResponse(t *testing.T) {
	for _, c := range []struct {
		name        string
		res         protocol.Response
		toHead, end bool
		want        string
	}{
		{"unknown length", protocol.Response{Status: 200, DeclaredLength: -1}, false, false, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n0\r\na: b\r\n\r\n"},
		{"length", protocol.Response{Status: 200, DeclaredLength: 2}, false, false, "Content-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{"length of 0", protocol.Response{Status: 200, DeclaredLength: 0}, false, false, "Content-Length: 0\r\nConnection: close\r\n\r\n"},
		{"no body", protocol.Response{Status: 200, DeclaredLength: -1}, false, true, "Content-Length: 0\r\nConnection: close\r\n\r\n"},
		{"head", protocol.Response{Status: 200, DeclaredLength: 7}, true, true, "Content-Length: 7\r\nConnection: close\r\n\r\n"},
		{"no content", protocol.Response{Status: 204, DeclaredLength: -1}, false, true, "Connection: close\r\n\r\n"},
		{"unsafe", protocol.Response{Status: 200, Headers: []protocol.Header{{Name: []byte("a b")}}}, false, true, ""},
	} {
		p := &proxytest.Pipe{}
		var w httpstream.Writer
		w.InitResponse(p)
		sent := w.Response(&c.res, c.toHead, c.end)
		if sent != (c.want != "") {
			t.Errorf("%s: sent %t", c.name, sent)
		}
		if sent && !c.end {
			if c.res.DeclaredLength != 0 {
				w.Data([]byte("hi"))
			}
			w.Data(nil)
			w.End([]protocol.Header{{Name: []byte("a"), Value: []byte("b")}})
		}
		_, got, _ := bytes.Cut(p.In, []byte("\r\n"))
		if string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzRoundTrip: a message delivered by a Writer, decoded, encoded anew by http1 and taken by a
// Reader in any pieces is the same message.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("hello, world"), "grpc-status", "0", uint64(1))
	f.Add([]byte{}, "", "", uint64(2))
	f.Add(bytes.Repeat([]byte("x"), 40000), "etag", "\"a\"", uint64(3))
	f.Add([]byte{}, "a", strings.Repeat("x", lim.Header), uint64(4))
	f.Fuzz(func(t *testing.T, body []byte, name, value string, seed uint64) {
		if len(name)+len(value) > lim.Header/2 {
			t.Skip("longer trailers may be refused")
		}
		random := rand.New(rand.NewPCG(seed, 0))
		in := &proxytest.Pipe{}
		var w httpstream.Writer
		w.Init(in, true)
		for rest := body; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			w.Data(rest[:n])
			rest = rest[n:]
		}
		trailers := []protocol.Header{{Name: []byte(name), Value: []byte(value)}}
		w.End(trailers)

		var decoded bytebufferpool.ByteBuffer
		var b http1.Body
		b.Reset(&http1.Head{Framing: http1.Chunked}, lim)
		if n, done, err := b.Decode(in.In, &decoded); n != len(in.In) || !done || err != nil {
			t.Fatalf("%d of %d, %t, %v", n, len(in.In), done, err)
		}
		passed := b.Trailers(&decoded, nil)
		if got := decoded.B[:b.Length()]; !bytes.Equal(got, body) {
			t.Fatalf("%q was delivered for %q", got, body)
		}

		text := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := body; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			text = http1.AppendChunk(text, rest[:n])
			rest = rest[n:]
		}
		text = http1.AppendLastChunk(text, passed)
		out := &proxytest.Pipe{}
		var r httpstream.Reader
		r.InitResponse(out, lim, false)
		var got message
		event := httpstream.Pending
		for len(text) > 0 {
			n := 1 + random.IntN(len(text))
			out.Out = append(out.Out, text[:n]...)
			text = text[n:]
			event = collect(&r, &got, func(n int) int { return 1 + random.IntN(n) })
		}
		if event != httpstream.End || got.body != string(body) || got.trailers != fields(passed) {
			t.Fatalf("event %d, %s; want %q and%s", event, got, body, fields(passed))
		}
	})
}

// FuzzReader: no text makes a Reader panic, or depends on how it is split.
func FuzzReader(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\na: b\r\n\r\n"), uint64(1))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		read := func(split func(n int) int) (m message, e httpstream.Event) {
			p := &proxytest.Pipe{}
			var r httpstream.Reader
			r.InitResponse(p, lim, false)
			for rest := text; len(rest) > 0; {
				n := split(len(rest))
				p.Out = append(p.Out, rest[:n]...)
				rest = rest[n:]
				e = collect(&r, &m, split)
			}
			return m, e
		}
		random := rand.New(rand.NewPCG(seed, 0))
		whole, e1 := read(all)
		split, e2 := read(func(n int) int { return 1 + random.IntN(n) })
		if e1 != e2 || e1 != httpstream.Broken && whole != split {
			t.Fatalf("whole: %d %s\nsplit: %d %s", e1, whole, e2, split)
		}
	})
}

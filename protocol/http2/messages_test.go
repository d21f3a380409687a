package http2

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// messageFrames returns the HEADERS and DATA that have come.
func (l *library) messageFrames(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(l.frames(t), func(f string) bool { return !strings.HasPrefix(f, "HEADERS") && !strings.HasPrefix(f, "DATA") })
}

// TestMessageOrder: a message has one head, then its body, then its end, whatever else is asked for.
func TestMessageOrder(t *testing.T) {
	const head, trailers = "HEADERS :status=200", "HEADERS a=b END"
	ok, again := &protocol.Response{Status: 200, DeclaredLength: -1}, &protocol.Response{Status: 500, DeclaredLength: -1}
	for name, c := range map[string]struct {
		do   func(c *Conn, st *Stream)
		want []string
	}{
		"a body without a head":    {func(c *Conn, st *Stream) { c.Send(st, []byte("x")); c.Finish(st, nil) }, nil},
		"a second head":            {func(c *Conn, st *Stream) { c.ResponseHead(st, ok); c.ResponseHead(st, again) }, []string{head}},
		"a response behind a head": {func(c *Conn, st *Stream) { c.ResponseHead(st, ok); c.Respond(st, again, nil) }, []string{head}},
		"a head behind the end": {func(c *Conn, st *Stream) {
			c.ResponseHead(st, ok)
			c.Finish(st, nil)
			c.ResponseHead(st, again)
		}, []string{head, "DATA  END"}},
		"a body behind the end": {func(c *Conn, st *Stream) {
			c.ResponseHead(st, ok)
			c.Finish(st, nil)
			c.Send(st, []byte("x"))
			c.Finish(st, nil)
		}, []string{head, "DATA  END"}},
		"trailers alone": {func(c *Conn, st *Stream) { c.ResponseHead(st, ok); c.Finish(st, fields("a: b")) }, []string{head, trailers}},
		"trailers behind a body": {func(c *Conn, st *Stream) {
			c.ResponseHead(st, ok)
			c.Send(st, []byte("x"))
			c.Finish(st, fields("a: b"))
		}, []string{head, "DATA x", trailers}},
	} {
		p, l := newServer(t, Options{}), newLibrary()
		p.onRequest = func(st *Stream, _ bool) { c.do(p.c, st) }
		l.out.WriteString(Preface)
		l.WriteSettings()
		l.headers(1, true, strings.Split(requestLines, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		if got := l.messageFrames(t); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRequestHeadBeyond: a client that may open no stream begins no request.
func TestRequestHeadBeyond(t *testing.T) {
	p := newClient(t, Options{})
	if err := p.c.Feed(appendSetting(appendFrame(nil, settingLen, frameSettings, 0, 0), settingMaxStreams, 1)); err != nil {
		t.Fatal(err)
	}
	if p.settings != 1 {
		t.Errorf("the handler hears of SETTINGS %d times", p.settings)
	}
	if p.c.RequestHead(typical(), "http", -1, false) == nil {
		t.Error("the first is refused")
	}
	if p.c.RequestHead(typical(), "http", -1, false) != nil || p.c.Request(typical(), "http", nil) != nil || p.c.StreamCount() != 1 {
		t.Errorf("another begins: %d streams", p.c.StreamCount())
	}
}

// TestDroppedFields: what concerns the connection, and what a peer would refuse, is not sent.
func TestDroppedFields(t *testing.T) {
	p, l := newServer(t, Options{}), newLibrary()
	p.onRequest = func(st *Stream, _ bool) {
		p.c.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Body: []byte("x"), Headers: fields("Connection: close", "keep-alive: 1", "Proxy-Connection: close",
			"transfer-encoding: chunked", "Upgrade: h2c", "Host: h", "content-length: 7", "expect: 100-continue", "te: gzip", "te: Trailers",
			"bad: a\nb", "tab: a\tb", "bad: a\x7f", "worse name: a", "x: y")}, nil)
	}
	l.out.WriteString(Preface)
	l.WriteSettings()
	for id := uint32(1); id < 9; id += 2 {
		l.headers(id, true, strings.Split(requestLines, "|")...)
	}
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	want := slices.Repeat([]string{"HEADERS :status=200 te=Trailers tab=a\tb x=y content-length=1", "DATA x END"}, 4)
	if got := l.messageFrames(t); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestIndexedFields: a field that comes again and again becomes an index, unless its value is secret or another each time.
func TestIndexedFields(t *testing.T) {
	for name, want := range map[string]bool{
		"Date": false, "traceparent": false, "grpc-timeout": false, "X-Request-Id": false, "x-remora-timeout-ms": false,
		"Cookie": false, "set-cookie": false, "Authorization": false, "proxy-authorization": false,
		"data": true, "hast": true, "cookiE2": true, "expecx": true, "cookix": true, "tracepareny": true, "grpc-timeoux": true, "x-request-ix": true,
		"Content-Type": true, "x-remora-timeout-mt": true, "authorizatiom": true, "proxy-authorizatiom": true, "set-cookix": true,
	} {
		p := newClient(t, Options{})
		length := 0
		for range 4 {
			p.c.Output(1 << 20)
			p.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: fields(name + ": some value")}, "http", nil)
			length = parseFrame(p.c.Output(1 << 20)).length
		}
		if got := length == 3+1; got != want {
			t.Errorf("%s: a head of %d bytes", name, length)
		}
	}
}

// TestDiscardedTrailers: trailers of a request that nobody wants end it, and no handler hears of them.
func TestDiscardedTrailers(t *testing.T) {
	p, l := newServer(t, Options{Limits: protocol.Limits{Header: 400, Headers: 6}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, false, strings.Split(requestLines+"|a: "+strings.Repeat("x", 400), "|")...)
	l.WriteData(1, false, []byte("dropped"))
	l.headers(1, true, "late: field")
	l.headers(3, true, strings.Split(requestLines+"|late: field", "|")...) // by its index
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	m := p.got[1]
	if got := lines(p.got[3].req.Headers); !slices.Equal(got, []string{"late: field"}) {
		t.Errorf("the next request has %q", got)
	}
	p.c.Respond(p.c.streams.get(3), typicalResponse(), nil)
	if st := p.c.streams.get(1); !m.oversize || m.end || len(m.trailers) > 0 || len(m.body) > 0 || !st.Ended() {
		t.Errorf("%+v, ended %t", m, st.Ended())
	}
	p.c.Respond(p.c.streams.get(1), &protocol.Response{Status: 431, DeclaredLength: -1}, nil)
	if err := l.feed(p); err != nil || p.c.StreamCount() != 0 {
		t.Errorf("%v, %d streams", err, p.c.StreamCount())
	}
	if got := l.frames(t); slices.Contains(got, "RST NO_ERROR") {
		t.Errorf("the request has ended, but %q", got)
	}
}

// TestOversizeAtEnd: a request of a head alone, which is too long, has ended, and so has its stream with the response.
func TestOversizeAtEnd(t *testing.T) {
	p, m := request(t, requestLines+"|a: "+strings.Repeat("x", 400), true)
	st := p.c.streams.get(1)
	if !m.oversize || !st.Ended() {
		t.Fatalf("%+v", m)
	}
	p.c.Respond(st, &protocol.Response{Status: 431, DeclaredLength: -1}, nil)
	if p.c.Output(1 << 20); p.c.StreamCount() != 0 {
		t.Errorf("%d streams", p.c.StreamCount())
	}
}

// TestBadTrailerBlock: trailers that can't be decompressed end the connection, as heads do, and the handler gets none.
func TestBadTrailerBlock(t *testing.T) {
	for _, client := range []bool{false, true} {
		p, l := newPeer(t, client, Options{}), newLibrary()
		if !client {
			l.out.WriteString(Preface)
		}
		l.WriteSettings()
		if client {
			p.c.RequestHead(typical(), "http", -1, false)
			l.headers(1, false, responseLines)
		} else {
			l.headers(1, false, strings.Split(requestLines, "|")...)
		}
		l.blocks(1, []byte{0, 1, 'a', 1, 'b', 0xff, 0xff})
		if err := l.feed(p); err != error(ErrCompression) {
			t.Errorf("client %t: %v", client, err)
		}
		if m := p.got[1]; !m.head || m.end || len(m.trailers) > 0 {
			t.Errorf("client %t: %+v", client, m)
		}
	}
}

// TestBadDiscardedTrailers: also trailers that nobody wants end the connection if they can't be decompressed, and not the message.
func TestBadDiscardedTrailers(t *testing.T) {
	p, l := newServer(t, Options{Limits: protocol.Limits{Header: 400, Headers: 6}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, false, strings.Split(requestLines+"|a: "+strings.Repeat("x", 400), "|")...)
	l.blocks(1, []byte{0, 1, 'a', 1, 'b', 0xff, 0xff})
	if err := l.feed(p); err != error(ErrCompression) || p.c.streams.get(1).Ended() {
		t.Errorf("%v, ended %t", err, p.c.streams.get(1).Ended())
	}
}

// TestOutputMemory: a connection does not keep the memory of an unusually long output.
func TestOutputMemory(t *testing.T) {
	for name, end := range map[string]func(c *Conn){"written": func(c *Conn) { c.Output(0) }, "closed": func(c *Conn) { c.Close() }} {
		p := newClient(t, Options{})
		for range 10 {
			p.c.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: fields("a: " + strings.Repeat("x", 50_000))}, "http", nil)
		}
		if n := cap(p.c.w.out); n <= keepOutput {
			t.Fatalf("only %d bytes", n)
		}
		if end(p.c); cap(p.c.w.out) > keepOutput {
			t.Errorf("%s: %d bytes are kept", name, cap(p.c.w.out))
		}
	}
}

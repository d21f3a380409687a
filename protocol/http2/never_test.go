package http2

import (
	"slices"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol"
)

// marked returns the fields of a header block, each of which begins with ! if it is never indexed.
func marked(hs []hpack.HeaderField) (all []string) {
	for _, h := range hs {
		line := h.Name + ": " + h.Value
		if h.Sensitive {
			line = "!" + line
		}
		all = append(all, line)
	}
	return all
}

// markedHeads returns the fields of the heads and trailers that have come.
func (l *library) markedHeads(t *testing.T) (all [][]string) {
	t.Helper()
	for l.in.Len() > 0 {
		f, err := l.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := f.(*xhttp2.MetaHeadersFrame); ok {
			all = append(all, marked(f.Fields))
		}
	}
	return all
}

// open returns hs with all fields free to be indexed.
func open(hs []protocol.Header) []protocol.Header {
	hs = slices.Clone(hs)
	for i := range hs {
		hs[i].NeverIndexed = false
	}
	return hs
}

// TestNeverIndexedRequest: fields that a client does not want to be indexed are passed on like this (RFC 7541 section 6.2.3), also
// if the table has them.
func TestNeverIndexedRequest(t *testing.T) {
	head := []string{":method: POST", ":scheme: http", ":path: /a?b", ":authority: h"}
	secretHead := []string{"!:method: POST", ":scheme: http", "!:path: /a?b", "!:authority: h"}
	for _, c := range []struct{ in, out []string }{
		{head, head},
		{slices.Concat(head, []string{"!x-token: 1", "x-open: 2"}), nil},
		{slices.Concat(head, []string{"!content-type: text/plain", "!x-request-id: 7", "!user-agent: a", "cookie: c=1"}),
			slices.Concat(head, []string{"!content-type: text/plain", "!x-request-id: 7", "!user-agent: a", "!cookie: c=1"})},
		{secretHead, nil},
		{[]string{":method: POST", ":scheme: http", "!:path: /a?b", ":authority: h"}, secretHead},
		{[]string{":method: POST", ":scheme: http", ":path: /a?b", "!host: h"}, secretHead},
		{[]string{"!:method: GET", ":scheme: http", ":path: /", ":authority: h"}, []string{"!:method: GET", ":scheme: http", "!:path: /", "!:authority: h"}},
		{[]string{"!:method: CONNECT", ":authority: h:1"}, []string{"!:method: CONNECT", "!:authority: h:1"}},
	} {
		if c.out == nil {
			c.out = c.in
		}
		p, l := newServer(t, Options{}), newLibrary()
		l.out.WriteString(xhttp2.ClientPreface)
		l.WriteSettings()
		l.headers(1, false, c.in...)
		l.headers(1, true, "!x-sum: 9", "x-open: 3")
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		req := p.got[1].req
		req.Trailers = fields(p.got[1].trailers...)

		p, l = newClient(t, Options{}), newLibrary()
		l.WriteSettings()
		opened := req
		opened.NeverIndexed, opened.Headers, opened.Trailers = false, open(req.Headers), open(req.Trailers)
		for range 3 { // now the table has all fields
			p.c.Request(&opened, "http", nil)
		}
		for range 3 {
			p.c.Request(&req, "http", nil)
		}
		l.feed(p)
		l.in.Next(len(xhttp2.ClientPreface))
		heads := l.markedHeads(t)
		if len(heads) != 12 {
			t.Fatalf("%q", heads)
		}
		for i := 6; i < 12; i += 2 {
			if !slices.Equal(heads[i], c.out) || strings.Join(heads[i+1], " ") != "!x-sum: 9 x-open: 3" {
				t.Errorf("%q\nbecame  %q\nwant    %q", c.in, heads[i:i+2], c.out)
			}
		}
	}
}

// TestNeverIndexedResponse is TestNeverIndexedRequest for the heads of a response and its trailers.
func TestNeverIndexedResponse(t *testing.T) {
	p, l := newClient(t, Options{}), newLibrary()
	l.WriteSettings()
	id := p.c.Request(typical(), "http", nil).ID()
	l.feed(p)
	l.headers(id, false, ":status: 103", "!link: </a>", "x-open: 1")
	l.headers(id, false, ":status: 200", "!x-token: 1", "server: a", "!date: now")
	l.headers(id, true, "!grpc-message: m", "grpc-status: 0")
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	got := p.got[id]
	if s := strings.Join(got.interim, " "); s != "103 [!link: </a> x-open: 1]" {
		t.Errorf("interim responses %s", s)
	}
	interim := protocol.Response{Status: 103, Headers: fields("!link: </a>", "x-open: 1")}
	got.res.Trailers = fields(got.trailers...)

	p, l = newServer(t, Options{}), newLibrary()
	p.onRequest = func(st *Stream, _ bool) {
		p.c.Interim(st, &interim)
		p.c.Respond(st, &got.res, nil)
	}
	l.out.WriteString(xhttp2.ClientPreface)
	l.WriteSettings()
	for i := range uint32(4) {
		l.headers(2*i+1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: h")
	}
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	heads := l.markedHeads(t)
	if len(heads) != 12 {
		t.Fatalf("%q", heads)
	}
	want := [][]string{
		{":status: 103", "!link: </a>", "x-open: 1"}, {":status: 200", "!x-token: 1", "server: a", "!date: now"},
		{"!grpc-message: m", "grpc-status: 0"},
	}
	for i, head := range heads {
		if !slices.Equal(head, want[i%3]) {
			t.Errorf("%q, want %q", head, want[i%3])
		}
	}
}

package http2

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

// message lines that a test adds to, or changes.
const (
	requestLines  = ":method: GET|:scheme: http|:path: /p|:authority: host"
	responseLines = ":status: 200"
)

// request feeds the head of a request to a new server.
func request(t *testing.T, head string, end bool) (*peer, *message) {
	p, l := newServer(t, Options{Limits: protocol.Limits{Header: 400, Headers: 6}}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	l.headers(1, end, strings.Split(head, "|")...)
	if err := l.feed(p); err != nil {
		t.Fatalf("%s: %v", head, err)
	}
	return p, p.got[1]
}

// TestRequestRules checks which heads of requests are malformed (RFC 9113 sections 8.2, 8.3).
func TestRequestRules(t *testing.T) {
	for _, c := range []struct {
		head string
		want *Error
	}{
		{requestLines, nil},
		{requestLines + "|te: trailers", nil},
		{requestLines + "|te: Trailers", nil},
		{requestLines + "|host: host", nil},
		{requestLines + "|host: HOST", nil},
		{requestLines + "|host: host.", nil},
		{":method: GET|:scheme: http|:path: /|:authority: host|host: host:80", nil},
		{":method: GET|:authority: Host.:443|:path: /|:scheme: https|host: %68ost", nil},
		{":method: GET|:scheme: http|:path: /|:authority: [::1]|host: [0:0::1]:80", nil},
		{":method: GET|:scheme: http|:path: /|:authority: host|host: host:443", ErrAuthority},
		{":method: GET|:scheme: https|:path: /|:authority: host|host: host:80", ErrAuthority},
		{":method: GET|:scheme: http|:path: /|:authority: host|host: host..", ErrAuthority},
		{requestLines + "|empty: ", nil},
		{requestLines + "|content-length: 0", nil},
		{":method: GET|:scheme: https|:path: /|host: [::1]:80", nil},
		{":method: OPTIONS|:scheme: http|:path: *|:authority: h", nil},
		{":method: CONNECT|:authority: host:443", nil},
		{":path: /|:authority: h|:scheme: http|:method: M-SEARCH", nil},

		{":method: GET|:scheme: http|:path: /p|:authority: ", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|:authority: user@host", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|:authority: host:99999", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|:authority: [::1", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|:authority: [", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|:authority: a/b", ErrAuthority},
		{requestLines + "|host: other", ErrAuthority},
		{requestLines + "|host: host|host: host", ErrAuthority},
		{":method: GET|:scheme: http|:path: /p|host: u@h", ErrAuthority},
		{":method: GET|:scheme: http|:path: p|:authority: h", ErrTarget},
		{":method: GET|:scheme: http|:path: |:authority: h", ErrTarget},
		{":method: GET|:scheme: http|:path: *|:authority: h", ErrTarget},
		{":method: GET|:scheme: http|:path: http://h/|:authority: h", ErrTarget},
		{":method: GET|:scheme: http|:path: /a b|:authority: h", ErrTarget},
		{":method: GET|:scheme: http|:path: /a#b|:authority: h", ErrTarget},
		{":method: GET|:scheme: ftp|:path: /|:authority: h", ErrPseudo},
		{":method: |:scheme: http|:path: /|:authority: h", ErrPseudo},
		{":method: G T|:scheme: http|:path: /|:authority: h", ErrPseudo},
		{":scheme: http|:path: /|:authority: h", ErrPseudo},
		{":method: GET|:path: /|:authority: h", ErrPseudo},
		{":method: GET|:scheme: http|:authority: h", ErrPseudo},
		{":method: CONNECT|:scheme: http|:path: /|:authority: h:1", ErrPseudo},
		{":method: CONNECT|:protocol: websocket|:authority: h:1", ErrPseudo},
		{":method: CONNECT", ErrAuthority},
		{":method: GET|" + requestLines, ErrPseudo},
		{requestLines + "|:path: /", ErrPseudo},
		{requestLines + "|:status: 200", ErrPseudo},
		{requestLines + "|:other: a", ErrPseudo},
		{"a: b|" + requestLines, ErrPseudo},
		{requestLines + "|:: a", ErrPseudo},
		{requestLines + "|: a", ErrField},
		{requestLines + "|A: b", ErrField},
		{requestLines + "|a b: c", ErrField},
		{requestLines + "|a:b: c", ErrField},
		{requestLines + "|é: c", ErrField},
		{requestLines + "|a: b\r\nc: d", ErrField},
		{requestLines + "|a: b\x00", ErrField},
		{requestLines + "|a: \x7f", ErrField},
		{requestLines + "|a:  b", ErrField},
		{requestLines + "|a: b\t", ErrField},
		{requestLines + "|connection: close", ErrField},
		{requestLines + "|keep-alive: 1", ErrField},
		{requestLines + "|proxy-connection: close", ErrField},
		{requestLines + "|transfer-encoding: chunked", ErrField},
		{requestLines + "|upgrade: h2c", ErrField},
		{requestLines + "|te: gzip", ErrField},
		{requestLines + "|content-length: 1", ErrLength},
		{requestLines + "|content-length: 5", ErrLength}, // without a body
		{requestLines + "|content-length: x", ErrLength},
		{requestLines + "|content-length: +0", ErrLength},
		{requestLines + "|content-length: ", ErrLength},
		{requestLines + "|content-length: 0|content-length: 0", ErrLength},
		{requestLines + "|content-length: 99999999999999999999", ErrLength},
		{requestLines + "|content-length: :", ErrLength},
	} {
		p, m := request(t, c.head, true)
		if m.why != c.want || m.head != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.head, m.why, c.want)
			continue
		}
		if c.want != nil || string(m.req.Method) == "CONNECT" {
			continue
		}
		// What is valid passes the decoder of HTTP/1.1 unchanged.
		var req protocol.Request
		var h http1.Head
		b := http1.AppendRequestHead(nil, &m.req)
		n, err := http1.DecodeRequest(b, &req, &h, &protocol.Limits{Header: 1000, Headers: 100, Message: 100})
		if err != nil || n != len(b) || !bytes.Equal(req.Path, m.req.Path) || strings.Join(lines(req.Headers), "|") != strings.Join(lines(m.req.Headers), "|") {
			t.Errorf("%s: as HTTP/1.1 %q, %v", c.head, b, err)
		}
		p.c.Close()
	}
}

// TestHeadLimits checks what exceeds the limits, and that the connection goes on.
func TestHeadLimits(t *testing.T) {
	for _, extra := range []string{"|a: " + strings.Repeat("x", 400), strings.Repeat("|a: b", 7), strings.Repeat("|cookie: "+strings.Repeat("b", 38), 10)} {
		p, m := request(t, requestLines+extra, true)
		if !m.oversize || m.head || m.reset != nil {
			t.Errorf("%.20s: oversize %t, head %t", extra, m.oversize, m.head)
		}
		p.c.Respond(p.c.streams.get(1), &protocol.Response{Status: 431, DeclaredLength: -1}, nil)
		p.c.Output(100)
		if p.c.StreamCount() != 0 {
			t.Errorf("%.20s: open", extra)
		}
	}
	if _, m := request(t, requestLines+strings.Repeat("|a: b", 6), true); !m.head {
		t.Error("refused at the limit")
	}
	p, _ := request(t, requestLines+strings.Repeat("|a: b", 7), false)
	p.c.Respond(p.c.streams.get(1), &protocol.Response{Status: 431, DeclaredLength: -1}, nil)
	if p.c.Output(100); p.c.StreamCount() != 0 {
		t.Error("the rest of the request is awaited")
	}
}

// TestCookies checks that cookies become one field, and count as one, however many fields bring them.
func TestCookies(t *testing.T) {
	used := len(":methodGET:schemehttp:path/p:authorityhost") + 4*fieldFraming
	most := strings.Repeat("b", 400-used-len("cookie")-fieldFraming-len("; c")) // with "; c" as long as the limit
	for _, c := range []struct {
		extra, want string // "" for a head above the limits
	}{
		{"|cookie: a=1|x: y|cookie: b=2|z: w|cookie: c=3", "cookie: a=1; b=2; c=3|x: y|z: w"},
		{"|cookie: |cookie: |x: y", "cookie: ; |x: y"},
		{strings.Repeat("|cookie: a=b", 50), "cookie: a=b" + strings.Repeat("; a=b", 49)},
		{strings.Repeat("|cookie: a=b|x: y", 5), "cookie: a=b" + strings.Repeat("; a=b", 4) + strings.Repeat("|x: y", 5)},
		{strings.Repeat("|cookie: a=b|x: y", 6), ""},
		{"|cookie: " + most + "|cookie: c", "cookie: " + most + "; c"},
		{"|cookie: " + most + "|cookie: cd", ""},
		{"|cookie: " + most + "|cookie: c|cookie: ", ""},
	} {
		_, m := request(t, requestLines+c.extra, true)
		if got := strings.Join(lines(m.req.Headers), "|"); m.oversize != (c.want == "") || !m.oversize && got != c.want {
			t.Errorf("%.60s: oversize %t, %.60s", c.extra, m.oversize, got)
		}
	}
}

// TestCookieMemory: the memory of a head has the text of its fields, and of no cookie but the first also the text of its own field.
func TestCookieMemory(t *testing.T) {
	const cookie = "cookie: a=b"
	for n := 1; n < 60; n++ {
		_, m := request(t, requestLines+strings.Repeat("|"+cookie, n), true)
		want := len("GET/phost") + len(":method:path:authority") + 2*len(cookie)
		for _, h := range m.req.Headers {
			want += len(h.Name) + len(h.Value)
		}
		if got := protocol.Held(&m.buf); !m.head || got > want {
			t.Errorf("%d cookies: head %t, %d bytes of memory, want at most %d", n, m.head, got, want)
		}
	}
}

// TestCookiesAsked: before several cookies become one, the handler is asked for the memory of both forms.
func TestCookiesAsked(t *testing.T) {
	first, second := strings.Repeat("a", 100), strings.Repeat("b", 100)
	p, l := newServer(t, Options{}), newLibrary()
	l.out.WriteString(Preface)
	l.WriteSettings()
	room := "|x: " + strings.Repeat("{", 3000) + "|y: " + strings.Repeat("}", 1000) // leaves some
	l.headers(1, true, strings.Split(requestLines+room+"|cookie: "+first+"|cookie: "+second, "|")...)
	if err := l.feed(p); err != nil {
		t.Fatal(err)
	}
	want := len("GET/phost") + protocol.TextOf(p.got[1].req.Headers) + len(first)
	if most := slices.Max(p.asked); most < want {
		t.Errorf("asked for %d bytes, want %d", most, want)
	}
}

// TestMoreCookiesAsked: cookies that came in pieces take more memory only once the handler has agreed to that of both forms. A handler
// that refuses is not asked again.
func TestMoreCookiesAsked(t *testing.T) {
	cookies := "|cookie: " + strings.Repeat("{", 3000) + "|cookie: " + strings.Repeat("}", 3000) + "|cookie: " + strings.Repeat("~", 6000)
	for agreed := range 8 {
		p, l := newServer(t, Options{Limits: protocol.Limits{Header: 64 << 10, Headers: 10}}), newLibrary()
		p.full, p.agreed = true, agreed
		l.out.WriteString(Preface)
		l.WriteSettings()
		l.headers(1, true, strings.Split(requestLines+cookies, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatal(err)
		}
		n := len(p.asked)
		m := p.got[1]
		if m.noRoom == m.head || m.noRoom && n != agreed+1 || m.head && n > agreed {
			t.Errorf("agreed %d times: asked for %v bytes, no room %t, head %t", agreed, p.asked, m.noRoom, m.head)
		}
		// At the end both forms are in memory, each of 12,000 bytes and what is between the cookies.
		if last := p.asked[n-1]; !slices.IsSorted(p.asked) || m.head && (last < 24_000 || last > protocol.RoomOf(25_000)) {
			t.Errorf("agreed %d times: asked for %v bytes", agreed, p.asked)
		}
	}
}

// TestLengths checks bodies of requests and responses against Content-Length.
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		length   string
		pieces   []string
		trailers bool
		want     *Error
	}{
		{"3", []string{"ab", "c"}, false, nil},
		{"3", []string{"ab", "c"}, true, nil},
		{"0", []string{""}, false, nil},
		{"3", []string{"ab"}, false, ErrLength},
		{"3", []string{"ab"}, true, ErrLength},
		{"3", []string{"ab", "cd"}, false, ErrLength},
		{"0", []string{"x"}, false, ErrLength},
		{"0", []string{"x"}, true, ErrLength},
	} {
		for _, client := range []bool{false, true} {
			p, l, head := newPeer(t, client, Options{}), newLibrary(), responseLines
			if client {
				p.c.Request(typical(), "http", nil)
			} else {
				l.out.WriteString(Preface)
				head = requestLines
			}
			l.WriteSettings()
			l.headers(1, false, strings.Split(head+"|content-length: "+c.length, "|")...)
			for i, s := range c.pieces {
				l.WriteData(1, i == len(c.pieces)-1 && !c.trailers, []byte(s))
			}
			if c.trailers {
				l.headers(1, true, "a: b")
			}
			if err := l.feed(p); err != nil {
				t.Fatal(err)
			}
			if m := p.got[1]; m.why != c.want || m.end != (c.want == nil) || m.head && len(lines(m.req.Headers)) != 0 {
				t.Errorf("client %t, %s, %q: %v, end %t", client, c.length, c.pieces, m.why, m.end)
			}
		}
	}
}

// TestResponseRules checks which heads of responses are malformed.
func TestResponseRules(t *testing.T) {
	for _, c := range []struct {
		method, head string
		want         *Error
	}{
		{"GET", responseLines, nil},
		{"GET", ":status: 103|link: a~" + responseLines, nil},
		{"GET", responseLines + "|host: x|expect: y|set-cookie: a|set-cookie: b", nil},
		{"HEAD", responseLines + "|content-length: 7", nil},
		{"GET", ":status: 304|content-length: 7", nil},
		{"GET", ":status: 304|content-length: 9223372036854775807", nil},
		{"GET", ":status: 304|content-length: 9223372036854775808", ErrLength},
		{"GET", ":status: 304|content-length: 18446744073709551617", ErrLength}, // 1 in 64 bits
		{"GET", ":status: 500", nil},
		{"GET", responseLines + "|content-length: 0", nil},
		{"GET", ":status: 599", nil},
		{"GET", ":status: 199~" + responseLines, nil},
		{"GET", ":status: 099", ErrPseudo},
		{"GET", ":status: 2:0", ErrPseudo},
		{"GET", ":status: 20:", ErrPseudo},
		{"GET", ":status: 2/0", ErrPseudo},
		{"GET", responseLines + "|content-length: 1", ErrLength},
		{"GET", responseLines + "|content-length: 7", ErrLength},
		{"GET", "a: b", ErrPseudo},
		{"GET", ":status: 99", ErrPseudo},
		{"GET", ":status: 600", ErrPseudo},
		{"GET", ":status: 2000", ErrPseudo},
		{"GET", ":status: 101", ErrInterim},
		{"GET", ":status: 103", ErrInterim},
		{"GET", ":status: 101~" + responseLines, ErrInterim},
		{"GET", responseLines + "|:status: 200", ErrPseudo},
		{"GET", responseLines + "|:path: /", ErrPseudo},
		{"GET", responseLines + "|connection: close", ErrField},
		{"GET", responseLines + "|x: " + strings.Repeat("y", 500), ErrHeadSize},
		{"GET", strings.Repeat(":status: 102~", 1000) + responseLines, nil},
	} {
		p, l := newClient(t, Options{Limits: protocol.Limits{Header: 400, Headers: 6}}), newLibrary()
		p.c.Request(&protocol.Request{Method: []byte(c.method), Path: []byte("/"), Authority: []byte("h")}, "http", nil)
		l.WriteSettings()
		heads := strings.Split(c.head, "~")
		for i, head := range heads {
			l.headers(1, i == len(heads)-1, strings.Split(head, "|")...)
		}
		if err := l.feed(p); err != nil {
			t.Fatalf("%s: %v", c.head, err)
		}
		if m := p.got[1]; m.head {
			want := slices.DeleteFunc(strings.Split(heads[len(heads)-1], "|"), func(line string) bool {
				return line[0] == ':' || strings.HasPrefix(line, "content-length")
			})
			if got := lines(m.res.Headers); !slices.Equal(got, want) {
				t.Errorf("%s %s: headers %q", c.method, c.head, got)
			}
		}
		if m := p.got[1]; m.why != c.want || m.head != (c.want == nil) || p.c.StreamCount() != 0 {
			t.Errorf("%s %s: %v, want %v", c.method, c.head, m.why, c.want)
		}
	}
}

// TestTrailerRules checks what trailers of requests may have. What is about the whole message is left out.
func TestTrailerRules(t *testing.T) {
	for _, c := range []struct {
		trailers, want string
		why            *Error
	}{
		{"a: b|c: d", "a: b|c: d", nil},
		{"a: b|host: x|content-length: 9|expect: 100-continue|cookie: c", "a: b|cookie: c", nil},
		{"a: b|:path: /", "", ErrPseudo},
		{"a: b|:status: 200", "", ErrPseudo},
		{"connection: close", "", ErrField},
		{"te: gzip", "", ErrField},
		{"a: b\x00", "", ErrField},
		{strings.Repeat("a: b|", 6) + "a: b", "", ErrHeadSize},
		{strings.Repeat("a: b|", 5) + "a: b", strings.Repeat("a: b|", 5) + "a: b", nil},
	} {
		p, l := newServer(t, Options{Limits: protocol.Limits{Header: 400, Headers: 6}}), newLibrary()
		l.out.WriteString(Preface)
		l.WriteSettings()
		l.headers(1, false, strings.Split(requestLines, "|")...)
		l.headers(1, true, strings.Split(c.trailers, "|")...)
		if err := l.feed(p); err != nil {
			t.Fatalf("%s: %v", c.trailers, err)
		}
		m := p.got[1]
		if got := strings.Join(m.trailers, "|"); m.why != c.why || got != c.want || m.end != (c.why == nil) {
			t.Errorf("%q: %q, %v, end %t", c.trailers, got, m.why, m.end)
		}
	}
}

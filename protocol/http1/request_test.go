package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// rest follows every message of the tables. The decoder must not touch it.
const rest = "GET /next HTTP/1.1\r\nHost: n\r\n\r\n"

type acceptCase struct {
	why      string // begins with the section of RFC 9112, or of RFC 9110 after a slash
	in       string
	head     string
	flags    string
	body     string
	trailers string
}

var acceptedRequests = []acceptCase{
	{"3.2.1 origin-form", "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/a?b=c|h|", "keep", "", ""},
	{"2.2 one empty line before", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|h|", "keep", "", ""},
	{"3.1 methods keep their case", "gEt- / HTTP/1.1\r\nHost: h\r\n\r\n", "gEt-|/|h|", "keep", "", ""},
	{"9.3 HEAD", "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD|/|h|", "keep head", "", ""},
	{"3.2.4 asterisk-form", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|*|h|", "keep", "", ""},
	{"3.2.2 absolute-form replaces Host", "GET http://a:1/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/x|a:1|", "keep", "", ""},
	{"3.2.2 scheme in any case", "GET HTTP://a/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|a|", "keep", "", ""},
	{"3.2.2 absolute-form without path", "GET http://a HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/|a|", "keep", "", ""},
	{"3.2.2 query without path", "GET http://a:1?b/c HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/?b/c|a:1|", "keep", "", ""},
	{"3.2.4 query without path is no *", "OPTIONS http://a? HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|/?|a|", "keep", "", ""},
	{"3.2.4 absolute-form for *", "OPTIONS http://a HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|*|a|", "keep", "", ""},
	{"3.2.3 authority-form", "CONNECT a:443 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT||a:443|", "keep connect", "", ""},
	{"3.2 characters that want escaping", "GET /{a}|\"^[]\\%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/{a}|\"^[]\\%zz|h|", "keep", "", ""},
	{"3.2 empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET|/||", "keep", "", ""},
	{"3.2 IPv6 with port", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET|/|[::1]:80|", "keep", "", ""},
	{"3.2 no Host in 1.0", "GET / HTTP/1.0\r\n\r\n", "GET|/||", "1.0", "", ""},
	{"9.3 keep-alive in 1.0", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET|/||", "1.0 keep", "", ""},
	{"9.6 close", "GET / HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE ,,\r\n\r\n", "GET|/|h|", "", "", ""},
	{"9.6 close beats keep-alive", "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", "GET|/|h|", "", "", ""},
	{"5.1 white space around values", "GET / HTTP/1.1\r\nHost:\t h \t\r\nA:b\r\nB: \t\r\n\r\n", "GET|/|h|A=b;B=;", "keep", "", ""},
	{"/5.5 obs-text and tab inside", "GET / HTTP/1.1\r\nHost: h\r\nA: x\ty \xff\xe9z longer than eight\r\n\r\n", "GET|/|h|A=x\ty \xff\xe9z longer than eight;", "keep", "", ""},
	{"/5.3 order and repetition kept", "GET / HTTP/1.1\r\na: 1\r\nHost: h\r\nA: 2\r\n\r\n", "GET|/|h|a=1;A=2;", "keep", "", ""},
	{"/7.6.1 hop-by-hop removed", "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nHTTP2-Settings: s\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTrailer: a\r\nProxy-Authorization: b\r\nUpgrade: u\r\nA: 1\r\n\r\n",
		"GET|/|h|Trailer=a;Proxy-Authorization=b;A=1;", "keep", "", ""},
	{"/7.6.1 nominated removed, also before", "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nB: 2\r\nConnection: close, x-a\r\nconnection: X-C\r\nx-c: 3\r\n\r\n",
		"GET|/|h|B=2;", "", "", ""},
	{"/7.6.1 Connection nominates itself", "GET / HTTP/1.1\r\nHost: h\r\nConnection: connection, x-a\r\nB: 2\r\nConnection: x-c\r\nX-A: 1\r\nX-C: 3\r\n\r\n",
		"GET|/|h|B=2;", "keep", "", ""},
	{"/7.6.1 protected not removed", "POST / HTTP/1.1\r\nX-Remora-Attempt: 1\r\nConnection: host, content-length, x-remora-attempt, Cookie, x-forwarded-for\r\nHost: h\r\nContent-Length: 1\r\nCookie: c\r\nX-Forwarded-For: f\r\n\r\nb",
		"POST|/|h|X-Remora-Attempt=1;Cookie=c;X-Forwarded-For=f;", "keep length=1", "b", ""},
	{"/7.6.1 protected names at their shortest", "GET / HTTP/1.1\r\nHost: h\r\nConnection: x-auth, content-, x-aut\r\nX-Auth: 1\r\nContent-: 2\r\nX-Aut: 3\r\n\r\n", "GET|/|h|X-Auth=1;Content-=2;", "keep", "", ""},
	{"/7.8 upgrade", "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n", "GET|/|h|Sec-WebSocket-Key=k;", "keep upgrade", "", ""},
	{"/7.8 no upgrade in 1.0", "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET|/||", "1.0", "", ""},
	{"6.2 length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 005\r\n\r\nhello", "POST|/|h|", "keep length=5", "hello", ""},
	{"6.2 length 0", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "POST|/|h|", "keep length=0", "", ""},
	{"6.2 length of a GET", "GET / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab", "GET|/||", "1.0 length=2", "ab", ""},
	{"/10.1.1 expect", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nab", "POST|/|h|", "keep expect length=2", "ab", ""},
	{"/10.1.1 expect with a byte of content", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", "POST|/|h|", "keep expect length=1", "a", ""},
	{"/10.1.1 expect in 1.0 is ignored", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab", "POST|/||", "1.0 length=2", "ab", ""},
	{"/10.1.1 expect without content", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", "POST|/|h|", "keep", "", ""},
	{"7.1 chunks", chunkedHead + "5\r\nhello\r\n00A\r\n, big wide\r\n6\r\n world\r\n0\r\n\r\n", "POST|/|h|", "keep chunked", "hello, big wide world", ""},
	{"7.1 no chunk", chunkedHead + "000\r\n\r\n", "POST|/|h|", "keep chunked", "", ""},
	{"7.1.1 extensions", chunkedHead + "1 ;a=\"b \t;\\\"~\";c\r\nx\r\n0\t;z\r\n\r\n", "POST|/|h|", "keep chunked", "x", ""},
	{"7.1.2 trailers", chunkedHead + "1\r\nx\r\n0\r\nX-Sum: 1\r\nEtag:\t2 \r\n\r\n", "POST|/|h|", "keep chunked", "x", "X-Sum=1;Etag=2;"},
	{"/6.5.1 fields that must not be trailers", chunkedHead + "0\r\nContent-Length: 9\r\nHost: x\r\nA: 1\r\nAuthorization: b\r\nSet-Cookie: c\r\nTransfer-Encoding: chunked\r\nX-Remora-Attempt: 0\r\n\r\n",
		"POST|/|h|", "keep chunked", "", "A=1;"},
	{"3 limit of the head reached exactly", "GET /" + strings.Repeat("a", 512-len("GET / HTTP/1.0\r\n\r\n")) + " HTTP/1.0\r\n\r\n",
		"GET|/" + strings.Repeat("a", 512-len("GET / HTTP/1.0\r\n\r\n")) + "||", "1.0", "", ""},
	{"limit of the fields reached exactly", "GET / HTTP/1.0\r\n" + strings.Repeat("a:\r\n", 12) + "\r\n", "GET|/||" + strings.Repeat("a=;", 12), "1.0", "", ""},
	{"limit of the body reached exactly", "PUT / HTTP/1.0\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("b", 1000), "PUT|/||", "1.0 length=1000", strings.Repeat("b", 1000), ""},
	{"limit reached with chunks", chunkedHead + "1F4\r\n" + strings.Repeat("b", 500) + "\r\n1f4\r\n" + strings.Repeat("c", 500) + "\r\n0\r\n\r\n",
		"POST|/|h|", "keep chunked", strings.Repeat("b", 500) + strings.Repeat("c", 500), ""},
}

const chunkedHead = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"

func TestAcceptedRequests(t *testing.T) {
	for i, c := range acceptedRequests {
		t.Run(c.why, func(t *testing.T) {
			checkAccepted(t, feeder{lim: testLimits}, c, uint64(i))
		})
	}
}

func checkAccepted(t *testing.T, f feeder, c acceptCase, seed uint64) {
	t.Helper()
	in := c.in
	if !f.eof {
		in += rest
	}
	got := f.feedAll(t, []byte(in), seed)
	want := outcome{used: len(c.in), head: c.head, flags: c.flags, body: c.body, trailers: c.trailers}
	if got != want {
		t.Fatalf("%q\ngot  %+v\nwant %+v", c.in, got, want)
	}
	// Every prefix is incomplete.
	for n := range len(c.in) {
		if f.eof && n > strings.Index(c.in, "\r\n\r\n") {
			break
		}
		if o := (feeder{response: f.response, toHead: f.toHead, lim: f.lim}).feed(t, []byte(c.in[:n]), nil); o.err != ErrIncomplete {
			t.Fatalf("first %d bytes of %q: %v", n, c.in, o.err)
		}
	}
}

// TestFoldedFirstLine checks what no case of the corpus has: a fold in front of all fields.
func TestFoldedFirstLine(t *testing.T) {
	const in = "GET / HTTP/1.1\r\n Host: h\r\n\r\n"
	if o := (feeder{lim: testLimits}).feedAll(t, []byte(in), 1); o.err != error(ErrObsFold) {
		t.Errorf("%v", o.err)
	}
}

// TestNominatedFieldsReleased checks that the reused list of headers refers to no
// removed header.
func TestNominatedFieldsReleased(t *testing.T) {
	var req protocol.Request
	var head Head
	b := []byte("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nConnection: a, b\r\n\r\n")
	if _, err := DecodeRequest(b, &req, &head, &protocol.Limits{Header: 1000, Headers: 10, Message: 1000}); err != nil {
		t.Fatal(err)
	}
	if len(req.Headers) != 0 || cap(req.Headers) < 2 {
		t.Fatalf("%d of %d headers", len(req.Headers), cap(req.Headers))
	}
	for _, h := range req.Headers[:cap(req.Headers)] {
		if h.Name != nil || h.Value != nil {
			t.Errorf("%q", h)
		}
	}
}

// TestAbsoluteForm checks what a Head says of a target, and where the scheme https is refused.
func TestAbsoluteForm(t *testing.T) {
	for _, c := range []struct {
		target                  string
		secure, absolute, https bool
		want                    error
	}{
		{"/", false, false, false, nil}, {"/", true, false, false, nil},
		{"http://a/", false, true, false, nil}, {"http://a/", true, true, false, nil},
		{"https://a/", false, false, false, ErrBadTarget}, {"HTTPS://a/", true, true, true, nil},
		{"ftp://a/", true, false, false, ErrBadTarget}, {"http:///", false, false, false, ErrBadTarget}, {"http://", false, false, false, ErrBadTarget},
		{"http://?", false, false, false, ErrBadTarget},
	} {
		var req protocol.Request
		h := Head{Secure: c.secure}
		_, err := DecodeRequest([]byte("GET "+c.target+" HTTP/1.1\r\nHost: h\r\n\r\n"), &req, &h, testLimits)
		if err != c.want || err == nil && (h.Absolute != c.absolute || h.HTTPS != c.https) {
			t.Errorf("%+v: absolute %t, https %t, %v", c, h.Absolute, h.HTTPS, err)
		}
	}
}

// TestBareCRAtOnce checks that the second byte is enough to refuse a first line.
func TestBareCRAtOnce(t *testing.T) {
	for in, want := range map[string]error{"\r": ErrIncomplete, "\r\n": ErrIncomplete, "\rG": ErrBareCR, "\r\r": ErrBareCR, "\n": ErrBadRequestLine} {
		var req protocol.Request
		if _, err := DecodeRequest([]byte(in), &req, new(Head), testLimits); err != want {
			t.Errorf("%q: %v, want %v", in, err, want)
		}
	}
}

// TestBareCRInFirstLine: a CR alone does not end a request line, not even one whose own end could be that of the head.
func TestBareCRInFirstLine(t *testing.T) {
	for _, in := range []string{"GET / HTTP/1.0\rX\r\n", "GET / HTTP/1.0\rX\r\n\r\n", "GET / HTTP/1.0\r\r\n\r\n", "GET / HTTP/1.0\rA: b\r\n\r\n"} {
		want := error(ErrBadRequestLine)
		if !strings.HasSuffix(in, "\r\n\r\n") {
			want = ErrIncomplete
		}
		if o := (feeder{lim: testLimits}).feedAll(t, []byte(in), 1); o.err != want {
			t.Errorf("%q: %v, want %v", in, o.err, want)
		}
	}
}

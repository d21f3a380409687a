package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
)

// AppendRequest appends req with its body, or nothing if ValidRequest refuses req.
func AppendRequest(dst []byte, req *protocol.Request) []byte {
	n := len(dst)
	dst = AppendRequestHead(dst, req)
	if len(dst) == n {
		return dst
	}
	return AppendBody(dst, req.Body, req.Trailers)
}

// ValidRequest returns the error for which the encoder appends nothing.
func ValidRequest(req *protocol.Request) error {
	_, err := requestSize(req)
	return err
}

// ValidResponse returns the error for which the encoder appends nothing.
func ValidResponse(resp *protocol.Response) error {
	_, err := responseSize(resp)
	return err
}

// hdr returns headers from name, value, name, value...
func hdr(s ...string) (hs []protocol.Header) {
	for i := 0; i < len(s); i += 2 {
		hs = append(hs, protocol.Header{Name: []byte(s[i]), Value: []byte(s[i+1])})
	}
	return hs
}

func request(method, path, authority string, hs, trailers []protocol.Header, body string) *protocol.Request {
	return &protocol.Request{Method: []byte(method), Path: []byte(path), Authority: []byte(authority), Headers: hs, Trailers: trailers, Body: []byte(body)}
}

func TestAppendRequest(t *testing.T) {
	for _, c := range []struct {
		req  *protocol.Request
		want string
	}{
		{request("GET", "/", "h", nil, nil, ""), "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{request("GET", "/", "", nil, nil, ""), "GET / HTTP/1.1\r\nHost: \r\n\r\n"},
		{request("OPTIONS", "*", "h", nil, nil, ""), "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"},
		{request("POST", "/", "h", nil, nil, ""), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		{request("GET", "/", "h", nil, nil, "b"), "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nb"},
		{request("POST", "/a?b", "h:80", hdr("A", "b", "a", "c"), nil, "body"),
			"POST /a?b HTTP/1.1\r\nHost: h:80\r\nA: b\r\na: c\r\nContent-Length: 4\r\n\r\nbody"},
		{request("POST", "/", "h", hdr("Content-Length", "9", "HOST", "x", "Connection", "close", "TE", "x", "Upgrade", "x", "Expect", "x",
			"keep-alive", "x", "transfer-encoding", "chunked", "Proxy-Connection", "x", "A", "b"), nil, "body"),
			"POST / HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 4\r\n\r\nbody"},
		{request("POST", "/", "h", nil, hdr("X", "y", "Content-Length", "3", "Authorization", "z"), strings.Repeat("b", 17)),
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n" + strings.Repeat("b", 17) + "\r\n0\r\nX: y\r\n\r\n"},
		{request("GET", "/", "h", nil, hdr("X", "y"), ""), "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n"},
	} {
		if got := string(AppendRequest(nil, c.req)); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	for _, c := range []struct {
		req *protocol.Request
		err *Error
	}{
		{request("", "/", "h", nil, nil, ""), ErrUnsafeMethod},
		{request("G T", "/", "h", nil, nil, ""), ErrUnsafeMethod},
		{request("GET\r\n", "/", "h", nil, nil, ""), ErrUnsafeMethod},
		{request("CONNECT", "/", "h", nil, nil, ""), ErrUnsafeMethod},
		{request("GET", "", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "a", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "*", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/ HTTP/1.1\r\nA: b", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/a b", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/#", "h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/", "h\r\nA: b", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/", "u@h", nil, nil, ""), ErrUnsafeTarget},
		{request("GET", "/", "h", hdr("", "b"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("A ", "b"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("A:b", "c"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("A", "b\n"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("A", "b\rc"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("A", "\x00"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", hdr("Connection", "\r\nB: c"), nil, ""), ErrUnsafeHeader},
		{request("GET", "/", "h", nil, hdr("A", "long enough for words\r\nB: c"), ""), ErrUnsafeHeader},
	} {
		if err := ValidRequest(c.req); err != error(c.err) {
			t.Errorf("%q %q %q %v: %v, want %v", c.req.Method, c.req.Path, c.req.Authority, c.req.Headers, err, c.err)
		}
		if got := string(AppendRequest([]byte("p"), c.req)); got != "p" {
			t.Errorf("encoded as %q", got)
		}
	}
}

func response(status int, reason string, hs, trailers []protocol.Header, body string) *protocol.Response {
	return &protocol.Response{Status: status, Reason: []byte(reason), Headers: hs, Trailers: trailers, Body: []byte(body), DeclaredLength: -1}
}

// declared returns a response to a HEAD, or a 304, with a declared length.
func declared(status int, n int64) *protocol.Response {
	return &protocol.Response{Status: status, DeclaredLength: n}
}

func TestAppendResponse(t *testing.T) {
	v11, v10 := ResponseFlags{Minor: 1}, ResponseFlags{}
	head := ResponseFlags{Minor: 1, ToHead: true}
	for _, c := range []struct {
		resp *protocol.Response
		f    ResponseFlags
		want string
	}{
		{response(200, "OK", hdr("A", "b"), nil, "hi"), v11, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nhi"},
		{response(200, "", nil, nil, ""), v11, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{response(200, "Fine", nil, nil, ""), v11, "HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n"},
		{response(200, "O", nil, nil, ""), v11, "HTTP/1.1 200 O\r\nContent-Length: 0\r\n\r\n"},
		{response(200, "OKAY", nil, nil, ""), v11, "HTTP/1.1 200 OKAY\r\nContent-Length: 0\r\n\r\n"},
		{response(599, "", nil, nil, ""), v11, "HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n"},
		{response(503, "", nil, nil, "x"), ResponseFlags{Minor: 1, Close: true}, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"},
		{response(200, "", nil, nil, "hi"), v10, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi"},
		{response(200, "", nil, nil, "hi"), ResponseFlags{Close: true}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"},
		{response(200, "", nil, hdr("X", "y"), "hi"), v11, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n"},
		{response(200, "", nil, hdr("X", "y"), "hi"), v10, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi"},
		{response(200, "", hdr("Content-Length", "7", "connection", "close", "Transfer-Encoding", "chunked", "Set-Cookie", "a", "Set-Cookie", "b"), nil, "hi"), v11,
			"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nhi"},
		{response(204, "", nil, hdr("X", "y"), "hi"), v11, "HTTP/1.1 204 No Content\r\n\r\n"},
		{declared(304, 9), v11, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"},
		{declared(304, -1), v11, "HTTP/1.1 304 Not Modified\r\n\r\n"},
		{declared(200, 9), head, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"},
		{declared(200, 0), head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{declared(200, -1), head, "HTTP/1.1 200 OK\r\n\r\n"},
		{&protocol.Response{Status: 200, Body: []byte("not to be seen")}, head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{response(503, "", nil, nil, "b"), head, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\n"},
		{response(503, "", nil, hdr("X", "y"), "busy"), head, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\n"},
	} {
		if got := string(AppendResponse(nil, c.resp, c.f)); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	for _, c := range []struct {
		resp *protocol.Response
		err  *Error
	}{
		{response(0, "", nil, nil, ""), ErrUnsafeStatus},
		{response(100, "", nil, nil, ""), ErrUnsafeStatus},
		{response(199, "", nil, nil, ""), ErrUnsafeStatus},
		{response(600, "", nil, nil, ""), ErrUnsafeStatus},
		{response(-200, "", nil, nil, ""), ErrUnsafeStatus},
		{response(200, "OK\r\nA: b", nil, nil, ""), ErrUnsafeReason},
		{response(200, "", hdr("A", "b\r\nC: d"), nil, ""), ErrUnsafeHeader},
		{response(200, "", hdr("A\r\nB", "c"), nil, ""), ErrUnsafeHeader},
		{response(200, "", nil, hdr("A", "b\n"), ""), ErrUnsafeHeader},
	} {
		if err := ValidResponse(c.resp); err != error(c.err) {
			t.Errorf("%d %q %v: %v, want %v", c.resp.Status, c.resp.Reason, c.resp.Headers, err, c.err)
		}
		if got := string(AppendResponse([]byte("p"), c.resp, ResponseFlags{Minor: 1})); got != "p" {
			t.Errorf("encoded as %q", got)
		}
	}
}

// TestAppendBody checks that AppendBody drops unsafe trailers even if the caller
// writes head and body separately.
func TestAppendBody(t *testing.T) {
	got := string(AppendBody(nil, []byte("b"), hdr("A", "b\r\n\r\nGET", "B:", "c", "D", "e", "Host", "f")))
	if want := "1\r\nb\r\n0\r\nD: e\r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := string(AppendBody([]byte("x"), []byte("b"), nil)); got != "xb" {
		t.Errorf("%q", got)
	}
}

// TestStatusLines checks the table for every code.
func TestStatusLines(t *testing.T) {
	for code := 200; code < 600; code++ {
		line := string(appendStatusLine(nil, code, []byte(protocol.Reasons[code])))
		want := "HTTP/1.1 " + string([]byte{byte('0' + code/100), byte('0' + code/10%10), byte('0' + code%10)}) + " " + protocol.Reasons[code] + "\r\n"
		if line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

// TestTextEnd compares the word-wise search with the byte-wise definition, for every
// byte at every offset.
func TestTextEnd(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			b := []byte(strings.Repeat("a\t\xffb~", 4))
			b[at] = byte(c)
			want := len(b)
			if c < 0x20 && c != '\t' || c == 0x7f {
				want = at
			}
			if got := textEnd(b, 0); got != want {
				t.Fatalf("byte %#x at %d: %d, want %d", c, at, got, want)
			}
			if got := textEnd(b, at); got != want && at < len(b) {
				t.Fatalf("byte %#x at %d, from there: %d, want %d", c, at, got, want)
			}
		}
	}
}

// TestDecodedLines checks that a header is written in the one way, wherever its name and value are in
// memory: in a line as it is written, in one that is not, or in different ones.
func TestDecodedLines(t *testing.T) {
	whole := func(h *protocol.Header) {}
	for _, c := range []struct {
		line, want string
		change     func(h *protocol.Header)
	}{
		{"A: b\r\n", "A: b\r\n", whole},
		{"A:b\r\n", "A: b\r\n", whole},
		{"A:  b\r\n", "A: b\r\n", whole},
		{"A:\tb\r\n", "A: b\r\n", whole},
		{"A: b \r\n", "A: b\r\n", whole},
		{"A: \r\n", "A: \r\n", whole},
		{"A:\r\n", "A: \r\n", whole},
		{"A: abc\r\n", "A: ab\r\n", func(h *protocol.Header) { h.Value = h.Value[:2] }},
		{"A: abc\r\n", "A: bc\r\n", func(h *protocol.Header) { h.Value = h.Value[1:] }},
		{"A: abc\r\n", "A: def\r\n", func(h *protocol.Header) { h.Value = []byte("def") }},
		{"A: abc\r\n", "A: longer than it was\r\n", func(h *protocol.Header) { h.Value = []byte("longer than it was") }},
		{"AB: abc\r\n", "A: abc\r\n", func(h *protocol.Header) { h.Name = h.Name[:1] }},
		{"AB: abc\r\n", "CD: abc\r\n", func(h *protocol.Header) { h.Name = []byte("CD") }},
		{"AB: abc\r\n", "AB: abc\r\n", func(h *protocol.Header) { h.Name = h.Name[:2:2] }},
	} {
		var req protocol.Request
		var h Head
		in := []byte("GET / HTTP/1.1\r\nHost: h\r\n" + c.line + "\r\n")
		if _, err := DecodeRequest(in, &req, &h, &protocol.Limits{Header: 1000, Headers: 10, Message: 1000}); err != nil || len(req.Headers) != 1 {
			t.Fatalf("%q: %v, %d headers", c.line, err, len(req.Headers))
		}
		c.change(&req.Headers[0])
		if got, want := string(AppendRequest(nil, &req)), "GET / HTTP/1.1\r\nHost: h\r\n"+c.want+"\r\n"; got != want {
			t.Errorf("%q: got  %q\nwant %q", c.line, got, want)
		}
	}
}

// TestPoisonedHeaders checks that tests which poison buffers don't believe a header that says it is valid.
func TestPoisonedHeaders(t *testing.T) {
	lie := []protocol.Header{{Name: []byte("A"), Value: []byte("b\r\nC: d"), Valid: true}}
	defer func(was bool) { protocol.PoisonBuffers = was }(protocol.PoisonBuffers)
	for _, poisoned := range []bool{false, true} {
		protocol.PoisonBuffers = poisoned
		if err := ValidRequest(request("GET", "/", "h", lie, nil, "")); (err != nil) != poisoned {
			t.Errorf("buffers are poisoned: %v; error %v", poisoned, err)
		}
	}
}

// TestAppendFields: the lines of a response have no hop-by-hop header, nothing that is skipped, and the length of its body.
func TestAppendFields(t *testing.T) {
	skip := func(name []byte) bool { return string(name) == "Skipped" }
	hs := hdr("A", "b", "Connection", "close", "Content-Length", "9", "Skipped", "x", "Host", "h", "C", "d")
	for status, want := range map[int]string{200: "A: b\r\nC: d\r\nContent-Length: 2\r\n", 205: "A: b\r\nC: d\r\nContent-Length: 2\r\n", 204: "A: b\r\nC: d\r\n"} {
		if got, ok := AppendFields([]byte("p"), response(status, "", hs, nil, "hi"), skip); !ok || string(got) != "p"+want {
			t.Errorf("%d: %q, %t", status, got, ok)
		}
	}
	if got, ok := AppendFields([]byte("p"), response(200, "", hdr("A", "b\n"), nil, ""), skip); ok || string(got) != "p" {
		t.Errorf("unsafe: %q, %t", got, ok)
	}
}

// TestSplitHead: only a long read is cut, behind the first head.
func TestSplitHead(t *testing.T) {
	const head = "GET / HTTP/1.1\r\n\r\n"
	for _, c := range []struct {
		size int
		head string
		want int // bytes of the head
	}{
		{longRead, head, longRead}, {longRead + 1, head, len(head)}, {longRead + 1, "GET", longRead + 1}, {longRead + 1, "\r\n\r\n", 4},
	} {
		b := []byte(c.head + strings.Repeat("x", c.size-len(c.head)))
		if head, rest := SplitHead(b); len(head) != c.want || len(head)+len(rest) != len(b) {
			t.Errorf("%d bytes behind %q: cut into %d and %d", c.size, c.head, len(head), len(rest))
		}
	}
}

// TestHeadInOnePiece: the memory for a head is enough at once, whichever part of it is long.
func TestHeadInOnePiece(t *testing.T) {
	long := strings.Repeat("a", 1000)
	var hs []protocol.Header
	for range 10 {
		hs = append(hs, hdr("Name-Of-A-Header", strings.Repeat("value ", 30))...)
	}
	lines := response(200, "", nil, nil, "")
	lines.Fields = []byte("A: " + long + "\r\nContent-Length: 0\r\n")
	heads := map[string]func() []byte{}
	for name, req := range map[string]*protocol.Request{
		"request":        request("GET", "/path", "authority.test", hs, nil, ""),
		"long method":    request(long, "/", "h", nil, nil, ""),
		"long path":      request("GET", "/"+long, "h", nil, nil, ""),
		"long authority": request("GET", "/", long, nil, nil, ""),
		"long name":      request("GET", "/", "h", hdr(long, ""), nil, ""),
	} {
		heads[name] = func() []byte { return AppendRequestHead(nil, req) }
	}
	for name, resp := range map[string]*protocol.Response{
		"response":    response(200, "", hs, nil, ""),
		"long reason": response(200, long, nil, nil, ""),
		"long lines":  lines,
	} {
		heads[name] = func() []byte { return AppendResponseHead(nil, resp, ResponseFlags{Minor: 1, Close: true}) }
	}
	for name, head := range heads {
		if n := testing.AllocsPerRun(100, func() { head() }); n != 1 && !racetest.Enabled {
			t.Errorf("%s: %v allocations", name, n)
		}
		if b := head(); cap(b) > 2*len(b) || len(b) < 1000 {
			t.Errorf("%s: %d bytes of memory for %d", name, cap(b), len(b))
		}
	}
}

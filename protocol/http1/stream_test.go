package http1

import (
	"bytes"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

func TestAppendStreamRequest(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: h\r\n", "POST / HTTP/1.1\r\nHost: h\r\n"
	framing := hdr("Content-Length", "9", "Transfer-Encoding", "chunked", "Expect", "100-continue", "Connection", "x", "TE", "trailers", "Upgrade", "h2c")
	for name, c := range map[string]struct {
		method  string
		headers []protocol.Header
		head    Head
		want    string
	}{
		"length":          {"POST", nil, Head{Framing: FixedLength, Length: 1 << 40}, post + "Content-Length: 1099511627776\r\nConnection: close\r\n\r\n"},
		"length of GET":   {"GET", nil, Head{Framing: FixedLength}, get + "Content-Length: 0\r\nConnection: close\r\n\r\n"},
		"chunked":         {"POST", nil, Head{Framing: Chunked}, post + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"},
		"no body":         {"GET", nil, Head{}, get + "Connection: close\r\n\r\n"},
		"no body of POST": {"POST", nil, Head{}, post + "Content-Length: 0\r\nConnection: close\r\n\r\n"},
		"expect":          {"POST", nil, Head{Framing: Chunked, ExpectContinue: true}, post + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"},
		"its own framing": {"POST", framing, Head{Framing: FixedLength, Length: 1}, post + "Content-Length: 1\r\nConnection: close\r\n\r\n"},
		"and chunks":      {"POST", framing, Head{Framing: Chunked}, post + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"},
		"and nothing":     {"GET", framing, Head{}, get + "Connection: close\r\n\r\n"},
	} {
		req := request(c.method, "/", "h", c.headers, hdr("X", "y"), "not to be seen")
		if got := string(AppendStreamRequest([]byte("p"), req, &c.head)); got != "p"+c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
	for _, unsafe := range []*protocol.Request{
		request("CONNECT", "/", "h", nil, nil, ""), request("GET", "/a b", "h", nil, nil, ""), request("GET", "/", "h", hdr("A", "b\nC: d"), nil, ""),
	} {
		if got := string(AppendStreamRequest([]byte("p"), unsafe, &Head{Framing: Chunked})); got != "p" {
			t.Errorf("unsafe: %q", got)
		}
	}
}

// TestStreamRequestRoundTrip checks that a request that is decoded and forwarded as a
// stream is the same request, with the same framing, for the next hop. An HTTP/1.0
// request gets no expectation.
func TestStreamRequestRoundTrip(t *testing.T) {
	for _, c := range acceptedRequests {
		var req, again protocol.Request
		var h, next Head
		n, err := DecodeRequest([]byte(c.in), &req, &h, testLimits)
		if err != nil {
			t.Fatal(c.why, err)
		}
		if h.Connect {
			continue
		}
		out := AppendStreamRequest(nil, &req, &h)
		if m, err := DecodeRequest(out, &again, &next, benchLimits); err != nil || m != len(out) {
			t.Fatalf("%s: %q: %d, %v", c.why, out, m, err)
		}
		if h.Framing == NoBody && protocol.DefinesContent(req.Method) {
			h.Framing = FixedLength
		}
		if next.Framing != h.Framing || next.Length != h.Length || next.KeepAlive || next.Upgrade || next.Minor != 1 ||
			next.ExpectContinue != (h.ExpectContinue && n > 0) || headerText(again.Headers) != headerText(req.Headers) {
			t.Errorf("%s:\n%q\nbecame %q", c.why, c.in, out)
		}
		if cl, te := bytes.Count(out, []byte("Content-Length")), bytes.Count(out, []byte("Transfer-Encoding")); cl+te > 1 {
			t.Errorf("%s: framed twice: %q", c.why, out)
		}
		if h.Minor == 0 && bytes.Contains(out, []byte("Expect")) {
			t.Errorf("%s: %q", c.why, out)
		}
	}
}

func TestAppendStreamResponse(t *testing.T) {
	const closing = "Connection: close\r\n\r\n"
	fixed, chunked, until := Head{Framing: FixedLength, Length: 7}, Head{Framing: Chunked}, Head{Framing: UntilClose}
	for name, c := range map[string]struct {
		status   int
		declared int64
		head     Head
		minor    int
		want     string // behind the status line; empty means refused
	}{
		"length":                 {200, -1, fixed, 1, "A: b\r\nContent-Length: 7\r\n" + closing},
		"length to 1.0":          {200, -1, fixed, 0, "A: b\r\nContent-Length: 7\r\n" + closing},
		"chunked":                {200, -1, chunked, 1, "A: b\r\nTransfer-Encoding: chunked\r\n" + closing},
		"chunked to 1.0":         {200, -1, chunked, 0, "A: b\r\n" + closing},
		"until close":            {500, -1, until, 1, "A: b\r\nTransfer-Encoding: chunked\r\n" + closing},
		"until close to 1.0":     {500, -1, until, 0, "A: b\r\n" + closing},
		"declared beside framed": {200, 3, chunked, 1, "A: b\r\nTransfer-Encoding: chunked\r\n" + closing},
		"to HEAD":                {200, 3, Head{}, 1, "A: b\r\nContent-Length: 3\r\n" + closing},
		"to HEAD, nothing":       {200, 0, Head{}, 1, "A: b\r\nContent-Length: 0\r\n" + closing},
		"to HEAD, undeclared":    {200, -1, Head{}, 1, "A: b\r\n" + closing},
		"no content":             {204, 3, Head{}, 1, "A: b\r\n" + closing},
		"not modified":           {304, 3, Head{}, 0, "A: b\r\nContent-Length: 3\r\n" + closing},
		"body with 204":          {204, -1, fixed, 1, ""},
		"body with 304":          {304, -1, until, 1, ""},
		"interim":                {101, -1, Head{}, 1, ""},
	} {
		resp := protocol.Response{Status: c.status, Reason: []byte("R"), DeclaredLength: c.declared, Body: []byte("not to be seen"),
			Headers: hdr("A", "b", "Content-Length", "9", "Transfer-Encoding", "chunked", "Connection", "keep-alive")}
		got := string(AppendStreamResponse([]byte("p"), &resp, &c.head, c.minor))
		line, rest, _ := strings.Cut(got, "\r\n")
		if rest != c.want || c.want == "" && line != "p" || c.want != "" && !strings.HasSuffix(line, " R") {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
	resp := protocol.Response{Status: 200, Headers: hdr("A", "b\r\nC: d"), DeclaredLength: -1}
	if got := AppendStreamResponse(nil, &resp, &fixed, 1); len(got) != 0 {
		t.Errorf("unsafe: %q", got)
	}
}

func TestAppendChunk(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"a", "1\r\na\r\n"}, {"\r\n", "2\r\n\r\n\r\n"}, {strings.Repeat("x", 31), "1f\r\n" + strings.Repeat("x", 31) + "\r\n"},
	} {
		if got := string(AppendChunk([]byte("p"), []byte(c.in))); got != "p"+c.want {
			t.Errorf("%q: %q", c.in, got)
		}
	}
	for _, c := range []struct {
		trailers []protocol.Header
		want     string
	}{
		{nil, "0\r\n\r\n"},
		{hdr("X", "y", "A", ""), "0\r\nX: y\r\nA: \r\n\r\n"},
		{hdr("Content-Length", "3", "X", "y\r\nZ: z", "Y ", "z", "Host", "h"), "0\r\n\r\n"},
	} {
		if got := string(AppendLastChunk([]byte("p"), c.trailers)); got != "p"+c.want {
			t.Errorf("%v: %q", c.trailers, got)
		}
	}
}

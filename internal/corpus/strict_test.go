package corpus

import (
	"io"
	"testing"
)

func TestParseRequest(t *testing.T) {
	const head = "POST /a HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct{ in, body string }{
		{"GET /?a=b HTTP/1.1\r\nHost: h\r\nA:\r\nB: c\xff\r\n\r\n", ""},
		{"OPTIONS * HTTP/1.1\r\nHost: \r\n\r\n", ""},
		{head + "Content-Length: 3\r\n\r\nabc", "abc"},
		{head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n", "abc0123456789"},
	} {
		m, n, err := ParseRequest([]byte(c.in + "GET"))
		if err != nil || n != len(c.in) || m.Body != c.body {
			t.Errorf("%q: %+v, %d, %v", c.in, m, n, err)
		}
		for i := range len(c.in) {
			if _, _, err := ParseRequest([]byte(c.in[:i])); err != io.ErrUnexpectedEOF {
				t.Errorf("%q: %v", c.in[:i], err)
			}
		}
	}
	for _, in := range []string{
		"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\nHost: h\r\n\r\n", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: h\r\n\r\n", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /# HTTP/1.1\r\nHost: h\r\n\r\n", "G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		head + "A : b\r\n\r\n", head + "A: b\r\n c\r\n\r\n", head + "A: \x00\r\n\r\n", head + "A: b\rc\r\n\r\n", head + "A\xff: b\r\n\r\n", head + "\n",
		head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", head + "Content-Length: 1, 1\r\n\r\na", head + "Content-Length: +1\r\n\r\na",
		head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", head + "Transfer-Encoding: gzip\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n1;a\r\nb\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n1\r\nbc\r\n0\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n1\nb\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\n", head + "Transfer-Encoding: chunked\r\n\r\n100000001\r\n",
	} {
		if m, _, err := ParseRequest([]byte(in)); err == nil || err == io.ErrUnexpectedEOF {
			t.Errorf("%q: %+v, %v", in, m, err)
		}
	}
}

func TestParseResponse(t *testing.T) {
	for _, c := range []struct {
		method, in, body string
		close            bool
	}{
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi", false},
		{"GET", "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "hi", true},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "", false},
		{"GET", "HTTP/1.1 204 X\r\n\r\n", "", false},
		{"GET", "HTTP/1.1 304 X\r\nContent-Length: 2\r\n\r\n", "", false},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\n", "", false},
	} {
		m, n, err := ParseResponse([]byte(c.in+"HTTP"), c.method)
		if err != nil || n != len(c.in) || m.Body != c.body || m.Close != c.close {
			t.Errorf("%q: %+v, %d, %v", c.in, m, n, err)
		}
	}
	for _, in := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 O\x00K\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
	} {
		if m, _, err := ParseResponse([]byte(in), "GET"); err == nil || err == io.ErrUnexpectedEOF {
			t.Errorf("%q: %+v, %v", in, m, err)
		}
	}
}

// TestRecord checks that Check accepts only the wanted requests.
func TestRecord(t *testing.T) {
	const one, two = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"
	want := []Message{{Method: "GET", Target: "/1", Host: "h"}, {Method: "GET", Target: "/2", Host: "h"}}
	for in, ok := range map[string]bool{one + two: true, one: false, two + one: false, one + two + "G": false, one + two + "\n": false, one + two + two: false} {
		var r Record
		on := NewRecorder(&r)
		for i := range in {
			on.Feed([]byte(in[i : i+1]))
		}
		if err := r.Check(want); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

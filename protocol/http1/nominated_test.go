package http1

import (
	"bytes"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// TestNominatedTrailers: trailers that Connection nominates go no further, with the exceptions of headers, and with the memory of
// the head gone when they arrive.
func TestNominatedTrailers(t *testing.T) {
	const trailers = "X-A: 1\r\nx-b: 2\r\nX-Sum: 3\r\nETag: c\r\ngrpc-status: 0\r\n"
	const all = "X-A: 1|x-b: 2|X-Sum: 3|ETag: c|grpc-status: 0"
	for _, c := range []struct{ connection, want string }{
		{"", all},
		{"Connection: close\r\n", all},
		{"Connection: x-other\r\n", all},
		{"Connection: x\r\n", all},
		{"Connection: X-Sum\r\n", "X-A: 1|x-b: 2|ETag: c|grpc-status: 0"},
		{"Connection: keep-alive, x-a ,,X-B\r\n", "X-Sum: 3|ETag: c|grpc-status: 0"},
		{"Connection: close\r\nX-C: 1\r\nconnection: x-a\r\nCONNECTION:x-b,x-c\r\n", "X-Sum: 3|ETag: c|grpc-status: 0"},
		{"Connection: etag, grpc-status\r\n", "X-A: 1|x-b: 2|X-Sum: 3|ETag: c"},
	} {
		for name, start := range map[string]string{"request": "POST / HTTP/1.1\r\nHost: h\r\n", "response": "HTTP/1.1 200 OK\r\n"} {
			lim := protocol.Limits{Header: 1 << 10, Headers: 20, Message: 100}
			in := []byte(start + c.connection + "Transfer-Encoding: chunked\r\n\r\n" + "1\r\nb\r\n0\r\n" + trailers + "\r\n")
			var h Head
			var n int
			var err error
			if name == "request" {
				n, err = DecodeRequest(in, &protocol.Request{}, &h, &lim)
			} else {
				n, err = DecodeResponse(in, false, &protocol.Response{}, &h, &lim)
			}
			if err != nil {
				t.Fatal(err)
			}
			rest := bytes.Clone(in[n:])
			clear(in)
			var d Body
			d.Reset(&h, &lim)
			var buf bytebufferpool.ByteBuffer
			if _, done, err := d.Decode(rest, &buf); err != nil || !done {
				t.Fatalf("%q: done %t, %v", c.connection, done, err)
			}
			var got []string
			for _, f := range d.Trailers(&buf, nil) {
				got = append(got, f.String())
			}
			if s := strings.Join(got, "|"); s != c.want {
				t.Errorf("%s with %q: %s, want %s", name, c.connection, s, c.want)
			}
		}
	}
}

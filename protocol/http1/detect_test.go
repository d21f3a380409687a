package http1

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestDetector checks that the verdict comes with the deciding byte, however the
// bytes are split.
func TestDetector(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Verdict
		at   int // bytes that the verdict needs
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", IsHTTP, 13},
		{"OPTIONS * HTTP/1.0\r\n\r\n", IsHTTP, 17},
		{"GET http://a/b?c=d HTTP/1.1\r\n", IsHTTP, 26},
		{"CONNECT a:443 HTTP/1.1\r\n", IsHTTP, 21},
		{"G", Undecided, 1},
		{"GET /a HTTP/1", Undecided, 13},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", LikeHTTP, 12},
		{"GET /\r\n", LikeHTTP, 6}, // HTTP/0.9
		{"GET / \r\n", LikeHTTP, 7},
		{"GET  /\r\n", LikeHTTP, 7},
		{" GET /\r\n", LikeHTTP, 7},
		{"GET \r\n", LikeHTTP, 5},
		{"GET  HTTP/1.1\r\n", LikeHTTP, 10},
		{"GETS /\r\n", NotHTTP, 8},
		{"GE /\r\n", NotHTTP, 6},
		{"get key\r\n", NotHTTP, 9}, // memcached
		{"PUT /\r\n", NotHTTP, 7},
		{"GET  / HTTP/1.1\r\n", LikeHTTP, 12},
		{"GET\t/ HTTP/1.1\r\n", LikeHTTP, 11},
		{" GET / HTTP/1.1\r\n", LikeHTTP, 12},
		{"\tGET / HTTP/1.1\r\n", LikeHTTP, 12},
		{"GET / http/1.1\r\n", LikeHTTP, 11},
		{"GET / HTHTTP/1.1\r\n", LikeHTTP, 13},
		{"GET /a b HTTP/1.1\r\n", LikeHTTP, 14},
		{"GET /\xc3\xa4 HTTP/1.1\r\n", LikeHTTP, 13},
		{"GET / HTTP/2.0\r\n", LikeHTTP, 12},
		{"GET / HTTP1.1\r\n", LikeHTTP, 14},
		{"PUT / HTTP1.1\r\n", NotHTTP, 15},
		{"(/ HTTP/1.1\r\n", LikeHTTP, 8},
		{"PUT( / HTTP/1.1\r\n", LikeHTTP, 12},
		{"PUT( /\r\n", NotHTTP, 8},
		{"GET( /\r\n", NotHTTP, 8},
		{"(\r\n", NotHTTP, 3},
		{"GE\t/\r\n", NotHTTP, 6},
		{"GET\t/\r\n", LikeHTTP, 6},
		{"PUT( HTHTTP/1.1\r\n", LikeHTTP, 12},
		{"PUT( HHTTP/1.1\r\n", LikeHTTP, 11},
		{"PUT\r/\rHTTP/1.1\r\n", LikeHTTP, 11},
		{"PUT\n/\nHTTP/1.1\r\n", NotHTTP, 4},
		{"PUT\x08/\x08HTTP/1.1\r\n", NotHTTP, 4},
		{"PUT /\x08HTTP/1.1\r\n", NotHTTP, 6},
		{"\r\nGET / HTTP/1.1\r\n", IsHTTP, 15},
		{"\r\n\n\rGET / HTTP/1.1\r\n", IsHTTP, 17}, // which the decoder refuses, and some servers take
		{strings.Repeat("\r\n", maxDetectBlank/2) + "GET / HTTP/1.1\r\n", IsHTTP, maxDetectBlank + 13},
		{strings.Repeat("\n", maxDetectBlank+1) + "GET / HTTP/1.1\r\n", LikeHTTP, maxDetectBlank + 1},
		{"\r\n\r\n\x00\r\nQUIT\n", NotHTTP, 5}, // the PROXY protocol
		{"\r\n", Undecided, 2},
		{"*1\r\n$4\r\nPING\r\n", NotHTTP, 4}, // Redis
		{"PING\r\n", NotHTTP, 6},
		{"SET key value\r\n", NotHTTP, 15},
		{"EHLO client.example\r\n", NotHTTP, 21}, // SMTP
		{"SSH-2.0-OpenSSH_9.2\r\n", NotHTTP, 21},
		{"\x16\x03\x01\x02\x00\x01", NotHTTP, 1}, // TLS
		{"\xda\xbb\xc2\x00", NotHTTP, 4},         // Dubbo
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", NotHTTP, 1},
		{strings.Repeat("x", 40), Undecided, 40},
		{strings.Repeat("x", 40) + "\r\n", NotHTTP, 42},
		{strings.Repeat("x", 40) + " / HTTP/1.1\r\n", LikeHTTP, 48},
		{strings.Repeat("x", 40) + "\x00", NotHTTP, 41},
		{strings.Repeat("x", maxDetectMethod) + " / HTTP/1.1\r\n", IsHTTP, maxDetectMethod + 10},
		{strings.Repeat("x", maxDetectMethod+1) + " / HTTP/1.1\r\n", LikeHTTP, maxDetectMethod + 9},
		{"GET /" + strings.Repeat("x", maxDetectTarget-1) + " HTTP/1.1\r\n", IsHTTP, 4 + maxDetectTarget + 8},
		{"GET /" + strings.Repeat("x", maxDetectTarget) + " HTTP/1.1\r\n", LikeHTTP, 4 + maxDetectTarget + 1 + 6},
		{"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\n", LikeHTTP, 4 + 9001 + 6},
		{"GET /" + strings.Repeat("x", 20000), LikeHTTP, 4 + 2*maxDetectTarget},
	} {
		var each Detector
		for i := range len(c.in) {
			v := each.Feed([]byte{c.in[i]})
			if want := verdictAt(c.want, c.at, i+1); v != want {
				t.Fatalf("%.40q, byte by byte: %d after %d bytes, want %d", c.in, v, i+1, want)
			}
			if v != Undecided {
				break
			}
		}
		for i := 0; i <= len(c.in); i += 1 + len(c.in)/200 { // each cut takes the whole input
			var d Detector
			v := d.Feed([]byte(c.in[:i]))
			if want := verdictAt(c.want, c.at, i); v != want {
				t.Fatalf("%.40q: %d of the first %d bytes, want %d", c.in, v, i, want)
			}
			if v == Undecided {
				v = d.Feed([]byte(c.in[i:]))
			}
			if v != c.want {
				t.Fatalf("%.40q split at %d: %d, want %d", c.in, i, v, c.want)
			}
		}
	}
}

// TestOddSpaces: servers may split a request line at other bytes than spaces, also at its beginning.
func TestOddSpaces(t *testing.T) {
	for _, space := range []byte("\t\v\f\r\x1c\x1d\x1e\x1f\x85\xa0") {
		for _, line := range []string{"PUT_/a_HTTP/1.1\r\n", "PUT /a_HTTP/1.1\r\n", "PUT_/a HTTP/1.1\r\n", "_PUT /a HTTP/1.1\r\n", "_GET /a\n", "GET_/a\n", "GET /a_\n"} {
			if space == '\r' && line[0] == '_' {
				continue // an empty line
			}
			says := strings.ReplaceAll(line, "_", string([]byte{space}))
			if v := new(Detector).Feed([]byte(says)); v != LikeHTTP {
				t.Errorf("%q: %d", says, v)
			}
		}
	}
}

// verdictAt returns the verdict after n bytes if v needs at bytes.
func verdictAt(v Verdict, at, n int) Verdict {
	if n < at {
		return Undecided
	}
	return v
}

// TestDetectorMatchesDecoder checks that the detector recognizes each request that
// the decoder accepts.
func TestDetectorMatchesDecoder(t *testing.T) {
	for _, c := range acceptedRequests {
		if v := new(Detector).Feed([]byte(c.in)); v != IsHTTP {
			t.Errorf("%s: %d for %q", c.why, v, c.in)
		}
	}
}

// FuzzDetector checks that the verdict does not depend on how the bytes are split,
// and that the detector recognizes each request that the decoder accepts.
func FuzzDetector(f *testing.F) {
	seedRequests(f, func(b []byte) { f.Add(b, uint16(len(b)/2)) })
	for _, s := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "\xda\xbb\xc2\x00", "GET /\r\n"} {
		f.Add([]byte(s), uint16(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		whole := new(Detector).Feed(in)
		var d Detector
		at := min(int(cut), len(in))
		split := d.Feed(in[:at])
		if split == Undecided {
			split = d.Feed(in[at:])
		}
		if split != whole {
			t.Fatalf("%q: %d, split at %d %d", in, whole, at, split)
		}
		var req protocol.Request
		var h Head
		lim := &protocol.Limits{Header: maxDetectTarget, Headers: 128, Message: protocol.NoLimit}
		_, err := DecodeRequest(in, &req, &h, lim)
		if err == nil && whole != IsHTTP && len(req.Method) <= maxDetectMethod {
			t.Fatalf("%q is a request, but the verdict is %d", in, whole)
		}
	})
}

package wire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

type parse func(m *Message, b []byte) (int, error)

func request(m *Message, b []byte) (int, error)  { return m.ParseRequest(b) }
func response(m *Message, b []byte) (int, error) { return m.ParseResponse(b, false) }
func toHead(m *Message, b []byte) (int, error)   { return m.ParseResponse(b, true) }

// feed gives in to p in growing prefixes that end at cuts. It returns the result of the first
// prefix that is not incomplete.
func feed(p parse, m *Message, in string, cuts []int) (int, error) {
	m.Reset()
	for _, cut := range append(cuts, len(in)) {
		// A copy of each prefix: a buffer that grows moves.
		n, err := p(m, []byte(in[:cut]))
		if err != ErrIncomplete {
			return n, err
		}
	}
	return 0, ErrIncomplete
}

func everyByte(n int) []int {
	var cuts []int
	for i := range n {
		cuts = append(cuts, i)
	}
	return cuts
}

func randomCuts(n int) []int {
	var cuts []int
	for i := range n {
		if rand.IntN(5) == 0 {
			cuts = append(cuts, i)
		}
	}
	return cuts
}

var whole = []struct {
	name  string
	parse parse
	in    string
	want  Message // Method, Target, Status, Nonce, Close, Body
}{
	{"no body", request, "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n",
		Message{Method: []byte("GET"), Target: []byte("/a?b")}},
	{"content-length", request, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Nonce:  n1 \r\n\r\nabc",
		Message{Method: []byte("POST"), Target: []byte("/"), Nonce: []byte("n1"), Body: []byte("abc")}},
	{"chunked with extension and trailer", request,
		"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked\r\n\r\n3;e=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: v\r\n\r\n",
		Message{Method: []byte("POST"), Target: []byte("/"), Body: []byte("abc0123456789")}},
	{"chunked, empty", request, "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
		Message{Method: []byte("POST"), Target: []byte("/")}},
	{"connection: close among others", request, "GET / HTTP/1.1\r\nHost: x\r\nConnection: te , Close\r\n\r\n",
		Message{Method: []byte("GET"), Target: []byte("/"), Close: true}},
	{"HTTP/1.0 needs no host and closes", request, "GET / HTTP/1.0\r\n\r\n",
		Message{Method: []byte("GET"), Target: []byte("/"), Close: true}},
	{"response", response, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-nonce: q\r\n\r\nhi",
		Message{Status: 200, Nonce: []byte("q"), Body: []byte("hi")}},
	{"refusal of a sidecar", response, "HTTP/1.1 502 No\r\nX-Remora-Error: upstream-reset\r\ncontent-length: 0\r\n\r\n",
		Message{Status: 502, Refusal: []byte("upstream-reset")}},
	{"response without reason", response, "HTTP/1.1 503\r\ncontent-length: 0\r\n\r\n", Message{Status: 503}},
	{"response after interim ones", response,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n",
		Message{Status: 200, Body: []byte("z")}},
	{"no content", response, "HTTP/1.1 204 No Content\r\n\r\n", Message{Status: 204}},
	{"to HEAD", toHead, "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", Message{Status: 200}},
}

func same(a, b *Message) bool {
	return bytes.Equal(a.Method, b.Method) && bytes.Equal(a.Target, b.Target) && a.Status == b.Status &&
		bytes.Equal(a.Nonce, b.Nonce) && bytes.Equal(a.Refusal, b.Refusal) && a.Close == b.Close && bytes.Equal(a.Body, b.Body)
}

func TestWholeMessages(t *testing.T) {
	for _, tt := range whole {
		t.Run(tt.name, func(t *testing.T) {
			splits := [][]int{nil, everyByte(len(tt.in))}
			for range 50 {
				splits = append(splits, randomCuts(len(tt.in)))
			}
			var m Message
			for _, cuts := range splits {
				n, err := feed(tt.parse, &m, tt.in, cuts)
				if err != nil || n != len(tt.in) || !same(&m, &tt.want) {
					t.Fatalf("split at %v: n = %d of %d, err = %v, message %+v", cuts, n, len(tt.in), err, m)
				}
			}
			// The next message is not touched.
			m.Reset()
			if n, err := tt.parse(&m, []byte(tt.in+"GET /next")); n != len(tt.in) || err != nil {
				t.Errorf("with a successor: n = %d, err = %v, want %d", n, err, len(tt.in))
			}
			for i := range tt.in {
				m.Reset()
				if n, err := tt.parse(&m, []byte(tt.in[:i])); n != 0 || err != ErrIncomplete {
					t.Fatalf("the first %d bytes: n = %d, err = %v", i, n, err)
				}
			}
		})
	}
}

func TestBadMessages(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: x\r\n"
	for _, tt := range []struct {
		name  string
		parse parse
		in    string
		want  error
	}{
		{"no version", request, "GET /\r\n\r\n", ErrMalformed},
		{"HTTP/2", request, "GET / HTTP/2.0\r\nHost: x\r\n\r\n", ErrMalformed},
		{"no host", request, "GET / HTTP/1.1\r\n\r\n", ErrMalformed},
		{"two hosts", request, post + "Host: y\r\n\r\n", ErrMalformed},
		{"space before colon", request, post + "a : b\r\n\r\n", ErrMalformed},
		{"no colon", request, post + "ab\r\n\r\n", ErrMalformed},
		{"folded line", request, post + "a: b\r\n c: d\r\n\r\n", ErrMalformed},
		{"bare LF in value", request, post + "a: b\nc: d\r\n\r\n", ErrMalformed},
		{"length and chunked", request, post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", ErrMalformed},
		{"two lengths", request, post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", ErrMalformed},
		{"signed length", request, post + "Content-Length: +1\r\n\r\n", ErrMalformed},
		{"length with underscore", request, post + "Content-Length: 1_0\r\n\r\n", ErrMalformed},
		{"gzip coding", request, post + "Transfer-Encoding: gzip, chunked\r\n\r\n", ErrMalformed},
		{"huge length", request, post + "Content-Length: 99999999\r\n\r\n", ErrTooLarge},
		{"huge head", request, post + "a: " + strings.Repeat("x", MaxHead) + "\r\n\r\n", ErrTooLarge},
		{"endless head", request, post + "a: " + strings.Repeat("x", MaxHead), ErrTooLarge},
		{"bad chunk size", request, post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", ErrMalformed},
		{"chunk too long for its size", request, post + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", ErrMalformed},
		{"endless chunk size", request, post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 5000), ErrTooLarge},
		{"chunks too large", request, post + "Transfer-Encoding: chunked\r\n\r\nffffff1\r\n", ErrTooLarge},
		{"response to the end of the connection", response, "HTTP/1.1 200 OK\r\n\r\n", ErrMalformed},
		{"status of two digits", response, "HTTP/1.1 20 OK\r\n\r\n", ErrMalformed},
		{"status below 100", response, "HTTP/1.1 099 x\r\n\r\n", ErrMalformed},
		{"not HTTP", response, "SSH-2.0-x\r\n\r\n", ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Message
			cuts := [][]int{nil}
			if len(tt.in) < 1000 {
				cuts = append(cuts, everyByte(len(tt.in)))
			}
			for _, c := range cuts {
				if n, err := feed(tt.parse, &m, tt.in, c); n != 0 || err != tt.want {
					t.Errorf("n = %d, err = %v, want %v", n, err, tt.want)
				}
			}
		})
	}
}

func TestContinue(t *testing.T) {
	var m Message
	m.Reset()
	_, err := m.ParseRequest([]byte("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"))
	if err != ErrIncomplete || !m.Continue || m.InHead() {
		t.Errorf("err = %v, Continue = %v, InHead = %v", err, m.Continue, m.InHead())
	}
}

// FuzzSplit checks that the splits of input do not matter.
func FuzzSplit(f *testing.F) {
	for _, tt := range whole {
		f.Add(tt.in, uint16(len(tt.in)/2), uint16(len(tt.in)/3))
	}
	f.Fuzz(func(t *testing.T, in string, a, b uint16) {
		cuts := []int{min(int(a), int(b), len(in)), min(max(int(a), int(b)), len(in))}
		for _, p := range []parse{request, response, toHead} {
			var once, split Message
			n1, err1 := feed(p, &once, in, nil)
			n2, err2 := feed(p, &split, in, cuts)
			if err1 == nil && (n1 < 1 || n1 > len(in)) {
				t.Fatalf("length %d of %d", n1, len(in))
			}
			if err1 == nil && (n1 != n2 || err2 != nil || !same(&once, &split)) {
				t.Fatalf("whole: %d %v %+v; split at %v: %d %v %+v", n1, err1, once, cuts, n2, err2, split)
			}
		}
	})
}

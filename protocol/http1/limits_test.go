package http1

import (
	"math"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// TestContentLength checks which numbers are lengths.
func TestContentLength(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "00": 0, "9": 9, "10": 10, "9223372036854775807": math.MaxInt64,
		"9223372036854775808": -1, "18446744073709551617": -1, "": -1, ":": -1, "/": -1, "1 ": -1, "-1": -1,
	} {
		n, err := contentLength([]byte(in))
		if n != want || (err == nil) != (want >= 0) {
			t.Errorf("%q: %d, %v", in, n, err)
		}
	}
}

// TestConnectionOptions checks that so many options are allowed, in however many fields.
func TestConnectionOptions(t *testing.T) {
	options := func(n int) string { return "Connection: " + strings.Repeat("a,", n-1) + "a\r\n" }
	for fields, want := range map[string]error{
		options(maxOptions):                      nil,
		options(maxOptions - 1):                  nil,
		options(maxOptions + 1):                  ErrBadConnection,
		options(maxOptions-1) + options(1):       nil,
		options(maxOptions/2) + options(17):      ErrBadConnection,
		options(maxOptions) + "X: y\r\n":         nil,
		options(maxOptions) + "Connection: \r\n": ErrBadConnection,
	} {
		in := "GET / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"
		if o := (feeder{lim: testLimits}).feedAll(t, []byte(in), 1); o.err != want {
			t.Errorf("%q: %v, want %v", fields, o.err, want)
		}
	}
}

// TestHeadLimits: an empty line before a request takes nothing of the limit of its head.
func TestHeadLimits(t *testing.T) {
	for name, c := range map[string]struct {
		head string // with an a in the place of as many as fit
		want error  // of a byte more
	}{
		"first line": {"GET /a HTTP/1.0\r\n\r\n", ErrHeaderTooLarge}, "field": {"GET / HTTP/1.0\r\nX: a\r\n\r\n", ErrHeaderTooLarge},
		"no line": {"GET /a", ErrTargetTooLong},
	} {
		for more, want := range []error{nil, c.want} {
			if c.want == ErrTargetTooLong && more == 0 {
				more, want = -1, ErrIncomplete
			}
			head := strings.Replace(c.head, "a", strings.Repeat("a", testLimits.Header-len(c.head)+1+more), 1)
			for _, before := range []string{"", "\r\n"} {
				if o := (feeder{lim: testLimits}).feedAll(t, []byte(before+head), 1); o.err != want || want == nil && o.used != len(before+head) {
					t.Errorf("%s, %d bytes more, behind %q: %v, want %v", name, more, before, o.err, want)
				}
			}
		}
	}
}

// TestHeadIsReadOnce: a head that arrives in many parts costs no more than one that is whole, since what was read of a line is not
// read again. Else the line breaks that come into that part would end the line.
func TestHeadIsReadOnce(t *testing.T) {
	for _, lines := range []string{"", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: h\r\n"} {
		var req protocol.Request
		var h Head
		in := []byte(lines + "part of a line")
		for i := range 2 {
			if _, err := DecodeRequest(in, &req, &h, testLimits); err != ErrIncomplete {
				t.Errorf("%q, part %d: %v", lines, i, err)
			}
			copy(in[len(lines)+1:], "\n\n\n")
			in = append(in, "more"...)
		}
	}
	for lines, end := range map[string]string{
		"": "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\n": "Host: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n": "\r\n",
	} {
		var req protocol.Request
		var h Head
		in := []byte(lines + "part of a line that has room for the end")
		for i := range 3 {
			if _, err := DecodeRequest(in, &req, &h, testLimits); err != ErrIncomplete {
				t.Errorf("%q, part %d, read again: %v", lines, i, err)
			}
			copy(in[len(lines):], end)
			in = append(in, "more"...)
		}
	}
}

// decodeChunks decodes a chunked body, whole and byte by byte, and returns the error.
func decodeChunks(t *testing.T, lim *protocol.Limits, in string) error {
	t.Helper()
	var errs [2]error
	for i, size := range [2]int{len(in), 1} {
		var d Body
		var dst bytebufferpool.ByteBuffer
		d.Reset(&Head{Framing: Chunked}, lim)
		for at := 0; at < len(in) && errs[i] == nil && !d.Done(); at += size {
			_, _, errs[i] = d.Decode([]byte(in[at:at+size]), &dst)
		}
	}
	if errs[0] != errs[1] {
		t.Errorf("%q: %v, byte by byte %v", in, errs[0], errs[1])
	}
	return errs[0]
}

// TestChunkLimits checks the limits of trailers and of the framing of chunks.
func TestChunkLimits(t *testing.T) {
	lim := &protocol.Limits{Header: 64, Headers: 4, Message: 100}
	a := func(n int) string { return strings.Repeat("a", n) }
	for in, want := range map[string]error{
		// The section has 64 bytes with its last line.
		"0\r\nA: " + a(64-7) + "\r\n\r\n":              nil,
		"0\r\nA: " + a(65-7) + "\r\n\r\n":              ErrTrailerTooLarge,
		"0\r\nA: " + a(60):                             nil,
		"0\r\nA: " + a(59) + "\r\n":                    nil,
		"0\r\nA: " + a(59) + "\r\n\r":                  ErrTrailerTooLarge,
		"0\r\nA: " + a(61):                             ErrTrailerTooLarge,
		"0\r\n" + strings.Repeat("a:\r\n", 4) + "\r\n": nil,
		"0\r\n" + strings.Repeat("a:\r\n", 5) + "\r\n": ErrTooManyHeaders,
		// 64 bytes of framing, and eight for each byte of content.
		"1;" + a(62):                          nil,
		"1;" + a(63):                          ErrChunkOverhead,
		"1\r\nx\r\n1;" + a(64+8-5-2):          nil,
		"1\r\nx\r\n1;" + a(64+8-5-1):          ErrChunkOverhead,
		"0000000000000001\r\nx\r\n0\r\n\r\n":  nil,
		"00000000000000001\r\nx\r\n0\r\n\r\n": ErrBadChunkSize,
	} {
		if err := decodeChunks(t, lim, in); err != want {
			t.Errorf("%q: %v, want %v", in, err, want)
		}
	}
}

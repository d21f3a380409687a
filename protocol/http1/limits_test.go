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
		before, behind string // with as many a between as the limit allows
		more           int    // bytes beyond that
		want           error
	}{
		"first line":              {"GET /", " HTTP/1.0\r\n\r\n", 0, nil},
		"longer first line":       {"GET /", " HTTP/1.0\r\n\r\n", 1, ErrHeaderTooLarge},
		"field":                   {"GET / HTTP/1.0\r\nX: ", "\r\n\r\n", 0, nil},
		"longer field":            {"GET / HTTP/1.0\r\nX: ", "\r\n\r\n", 1, ErrHeaderTooLarge},
		"part of a line":          {"GET /", "", -1, ErrIncomplete},
		"part of too long a line": {"GET /", "", 1, ErrTargetTooLong},
	} {
		head := c.before + strings.Repeat("a", testLimits.Header-len(c.before+c.behind)+c.more) + c.behind
		for _, blank := range []string{"", "\r\n"} {
			if o := (feeder{lim: testLimits}).feedAll(t, []byte(blank+head), 1); o.err != c.want || c.want == nil && o.used != len(blank+head) {
				t.Errorf("%s behind %q: %v, want %v", name, blank, o.err, c.want)
			}
		}
	}
}

// TestHeadIsReadOnce: a head that arrives in many parts costs no more than one that is whole, since what was read of a line is not
// read again. Else what is written over that part, an end of the line or of the head, would be found.
func TestHeadIsReadOnce(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		at    int // in the part of a line behind them
		over  string
	}{
		"first line, its end":  {"", 1, "\n\n\n"},
		"a field, its end":     {"GET / HTTP/1.1\r\n", 1, "\n\n\n"},
		"another, its end":     {"GET / HTTP/1.1\r\nHost: h\r\n", 1, "\n\n\n"},
		"first line, the head": {"", 0, "GET / HTTP/1.0\r\n\r\n"},
		"a field, the head":    {"GET / HTTP/1.1\r\n", 0, "Host: h\r\n\r\n"},
		"another, the head":    {"GET / HTTP/1.1\r\nHost: h\r\n", 0, "\r\n"},
	} {
		var req protocol.Request
		var h Head
		in := []byte(c.lines + "part of a line that has room for the end")
		for i := range 3 {
			if _, err := DecodeRequest(in, &req, &h, testLimits); err != ErrIncomplete {
				t.Errorf("%s, part %d: %v", name, i, err)
			}
			copy(in[len(c.lines)+c.at:], c.over)
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

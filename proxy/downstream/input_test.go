package downstream_test

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestExampleOf: of a malformed or incomplete head the log gets what can be read, and nothing of
// a body or of another protocol.
func TestExampleOf(t *testing.T) {
	for in, want := range map[string][3]string{
		"GET /a?b=c HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n":                      {"GET", "h", "/a?b=c"},
		"\r\nPOST /a HTTP/1.1\r\nx: y\r\nHOST:  h:80 \r\n":                       {"POST", "h:80", "/a"},
		"GET /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nHost: body":                 {"GET", "", "/a"},
		"GET /a HTTP/1.1\r\nx: " + strings.Repeat("y", 9000) + "\r\nHost: h\r\n": {"GET", "", "/a"},
		"GET":                                {"GET", "", ""},
		"":                                   {"", "", ""},
		"\x16\x03\x01\x02\x00\x01":           {"", "", ""},
		"nonsense\nHost: h":                  {"nonsense", "h", ""},
		"GET /a HTTP/1.1\nHost: h\n\nx: y\n": {"GET", "h", "/a"},
	} {
		e := downstream.ExampleOf([]byte(in))
		if got := [3]string{string(e.Method), string(e.Host), string(e.Path)}; got != want {
			t.Errorf("%.80q: %q, want %q", in, got, want)
		}
	}
}

func TestOtherProtocol(t *testing.T) {
	for in, want := range map[string]*fault.Failure{
		"\x16":                   fault.TLSNotServed,
		"\x16\x03\x01\x02\x00":   fault.TLSNotServed,
		"GET / HTTP/2.0\r\n\r\n": nil,
		"":                       nil,
	} {
		if got := downstream.OtherProtocol([]byte(in)); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func TestBeginsHTTP2(t *testing.T) {
	for in, want := range map[string]bool{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": true,
		"PRI * HTTP/2.0\r\n":               true,
		"PRI * HTTP/2":                     true,
		"P":                                true,
		"PRI * HTTP/2.0\n":                 false,
		"PRI * HTTP/1.1\r\n\r\n":           false,
		"":                                 false,
	} {
		if got := downstream.BeginsHTTP2([]byte(in)); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
}

// TestBeginsTLS: each byte of the head of a record and of a ClientHello decides, once it is there.
func TestBeginsTLS(t *testing.T) {
	const hello = "\x16\x03\x01\x40\x00\x01"
	for in, want := range map[string][2]bool{
		"": {}, hello[:1]: {}, hello[:5]: {}, hello: {true, true}, hello + "more": {true, true},
		"\x16\x03\xff\x00\x00\x01": {true, true},
		"G":                        {false, true}, "\x17": {false, true}, "\x16\x02": {false, true}, "\x16\x04": {false, true},
		"\x16\x03\x01\x41": {false, true}, "\x16\x03\x01\x40\x00\x00": {false, true}, "\x16\x03\x01\x40\x00\x02": {false, true},
	} {
		if is, known := downstream.BeginsTLS([]byte(in)); is != want[0] || known != want[1] {
			t.Errorf("%q: %t, known %t", in, is, known)
		}
	}
}

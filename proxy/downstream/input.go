package downstream

import (
	"bytes"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// What clients of other protocols send first.
const (
	http2Preface = "PRI * HTTP/2.0\r\n" // RFC 9113 section 3.4, its first line
	tlsHandshake = 22                   // the type of the record with a ClientHello; no method begins so
)

// BeginsHTTP2 reports whether in, which is no request of HTTP/1.1, begins with the preface of HTTP/2, as
// far as it has arrived.
func BeginsHTTP2(in []byte) bool {
	n := min(len(in), len(http2Preface))
	return n > 0 && string(in[:n]) == http2Preface[:n]
}

// BeginsTLS reports whether in begins with the head of a ClientHello and its record (RFC 8446 sections 4
// and 5.1), and whether that is known yet.
func BeginsTLS(in []byte) (is, known bool) {
	const clientHello, headSize = 1, 6
	for i, c := range in[:min(len(in), headSize)] {
		switch {
		case i == 0 && c != tlsHandshake, i == 1 && c != 3, i == 3 && c > 0x40, i == 5 && c != clientHello:
			return false, true
		}
	}
	return len(in) >= headSize, len(in) >= headSize
}

// OtherProtocol returns the failure for the first input of an HTTP/1.1 connection, which is no
// request, if the client speaks another protocol that is known. Otherwise it returns nil.
func OtherProtocol(in []byte) *fault.Failure {
	if len(in) > 0 && in[0] == tlsHandshake {
		return fault.TLSNotServed
	}
	return nil
}

// appendAlert appends the record of the fatal TLS alert handshake_failure (RFC 8446 section 6).
func appendAlert(dst []byte) []byte {
	const alert, fatal, handshakeFailure = 21, 2, 40
	return append(dst, alert, 3, 3, 0, 2, fatal, handshakeFailure)
}

// maxExampleInput bounds the input in which ExampleOf looks for a Host.
const maxExampleInput = 8 << 10

// ExampleOf returns what can be read of a request whose head may be malformed or incomplete.
func ExampleOf(in []byte) (e shard.Example) {
	in = in[:min(len(in), maxExampleInput)]
	if OtherProtocol(in) != nil {
		return e
	}
	line, rest, _ := bytes.Cut(bytes.TrimLeft(in, "\r\n"), []byte{'\n'})
	e.Method, line, _ = bytes.Cut(bytes.TrimRight(line, "\r"), []byte{' '})
	e.Path, _, _ = bytes.Cut(line, []byte{' '})
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		name, value, _ := bytes.Cut(line, []byte{':'})
		if bytes.EqualFold(name, []byte("host")) {
			e.Host = bytes.TrimSpace(value)
			break
		}
		if len(bytes.TrimRight(line, "\r")) == 0 { // the end of the head
			break
		}
	}
	return e
}

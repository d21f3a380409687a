package reactor

import (
	"crypto/tls"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// negotiated is a stream that wants HTTP/2.
type negotiated struct{ stream }

func (*negotiated) ServiceKey() string { return "" }
func (*negotiated) ALPN() string       { return "h2" }

// TestTLSDialALPN checks that a dial succeeds only if the peer selects the application protocol
// that the stream names.
func TestTLSDialALPN(t *testing.T) {
	own := NewIdentity(t)
	for _, offered := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
		server := own.Server().Clone()
		server.NextProtos = offered
		e := start(t, Options{DialTLS: func(_, _, _ string) func() *tls.Config { return own.Client }})
		addr := listen(t, e, ListenOptions{TLS: func() *tls.Config { return server }}, echo)
		result := make(chan error, 2)
		e.Loops()[0].Post(func() {
			e.Loops()[0].Dial(addr, waitLimit, &negotiated{stream{
				open:  func(c loop.Conn) { result <- nil; c.Close() },
				close: func(err error) { result <- err },
			}})
		})
		err, want := recv(t, result, "the end of the dial"), len(offered) == 2
		if (err == nil) != want {
			t.Errorf("a server with %v: %v", offered, err)
		}
		if offered == nil {
			awaitFailure(t, e, CodeProtocol, 1)
		}
	}
}

package reactor

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
)

// negotiated is a stream that wants HTTP/2.
type negotiated struct{ stream }

func (*negotiated) ServiceKey() string { return "" }
func (*negotiated) ALPN() string       { return "h2" }

// TestTLSDialALPN checks that a dial succeeds only if the peer selects the application protocol
// that the stream names, whatever else the configuration verifies.
func TestTLSDialALPN(t *testing.T) {
	own := NewIdentity(t)
	for _, config := range []func() *tls.Config{
		own.Client,
		func() *tls.Config {
			c := own.Client().Clone()
			c.InsecureSkipVerify, c.VerifyConnection = true, nil
			return c
		},
	} {
		for _, offered := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
			server := own.Server().Clone()
			server.NextProtos = offered
			e := start(t, Options{DialTLS: func(_, _, _ string) func() *tls.Config { return config }})
			addr := listen(t, e, ListenOptions{TLS: func() *tls.Config { return server }}, echo)
			result := make(chan error, 2)
			e.Loops()[0].Post(func() {
				e.Loops()[0].Dial(addr, waitLimit, &negotiated{stream{
					open: func(c loop.Conn) {
						if got := c.Protocol(); got != "h2" {
							t.Errorf("the protocol is %q", got)
						}
						result <- nil
						c.Close()
					},
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
}

// TestIdentityOfPeer: a connection with TLS has its protocol and the names of the client's certificate. One without has
// neither.
func TestIdentityOfPeer(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	for _, secure := range []bool{true, false} {
		o, seen := ListenOptions{}, make(chan string, 1)
		if secure {
			o.TLS = func() *tls.Config {
				c := own.Server().Clone()
				c.NextProtos = []string{"h2"}
				return c
			}
		}
		addr := listen(t, e, o, func() loop.Receiver {
			return &stream{open: func(c loop.Conn) {
				names := ""
				if n := identity.Of(c); n != nil {
					names = strings.Join(n.URIs, " ")
				}
				seen <- c.Protocol() + " " + names + " " + c.OriginalDst().Addr().String()
			}}
		})
		nc, want := dial(t, addr), "  invalid IP"
		if secure {
			config := own.Client().Clone()
			config.NextProtos = []string{"h2"}
			if err := tls.Client(nc, config).Handshake(); err != nil {
				t.Fatal(err)
			}
			want = "h2 " + meshName + " invalid IP"
		}
		if got := recv(t, seen, "the connection"); got != want {
			t.Errorf("secure %t: %q, want %q", secure, got, want)
		}
	}
}

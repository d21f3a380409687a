package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestPanicsOffLoops: a panic on a goroutine that handles the first bytes of a connection is counted, and ends that
// connection alone.
func TestPanicsOffLoops(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close what nobody has closed
	own := NewIdentity(t)
	boom := func() *tls.Config { panic("boom") }
	for name, c := range map[string]struct {
		listen ListenOptions
		sent   string
	}{
		"handshake": {ListenOptions{TLS: boom}, string(clientHello(t, own))},
		"PROXY": {ListenOptions{Proxies: &Proxies{
			Trusts: func(netip.Addr) bool { return true }, Refused: func(string, error) {},
			Wait: func() time.Duration { panic("boom") },
		}}, "PROXY UNKNOWN\r\n"},
		"first bytes": {ListenOptions{Transparent: &Transparent{
			Wait: waitLimit, Guarded: func() bool { panic("boom") },
		}}, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	} {
		e := start(t, Options{})
		e.originalDst = func(*net.TCPConn) netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:1") }
		nc := dial(t, listen(t, e, c.listen, echo))
		_, _ = io.WriteString(nc, c.sent)
		if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
			t.Errorf("%s: %v", name, err)
		}
		awaitPanic(t, e, name)
	}

	server := listen(t, start(t, Options{}), ListenOptions{TLS: own.Server}, echo)
	for name, dial := range map[string]func(e *Reactor) error{
		"dial": func(e *Reactor) error {
			closed := make(chan error, 1)
			on(t, e.loops[0], func() { e.loops[0].Dial(server, waitLimit, &stream{close: func(err error) { closed <- err }}) })
			return recv(t, closed, "the end of the dial")
		},
		"socket": func(e *Reactor) error {
			_, err := e.SocketDialer().Dial(context.Background(), server, "", "", nil)
			return err
		},
	} {
		e := start(t, Options{DialTLS: func(_, _, _ string) func() *tls.Config { return boom }})
		if err := dial(e); err == nil {
			t.Errorf("%s: no error", name)
		}
		awaitPanic(t, e, name)
	}
}

// awaitPanic waits until one panic counts, and no connection.
func awaitPanic(t *testing.T, e *Reactor, name string) {
	t.Helper()
	eventually(t, func() error {
		if s := e.Stats(); s.Panics != 1 || s.Open != 0 || s.Inbound != 0 {
			return fmt.Errorf("%s: stats %+v", name, s)
		}
		return nil
	})
}

// TestPanicInVerify: a peer that can't be verified again is no longer trusted.
func TestPanicInVerify(t *testing.T) {
	own := NewIdentity(t)
	verified := false
	config := own.Server().Clone()
	config.VerifyConnection = func(tls.ConnectionState) error {
		if verified {
			panic("boom")
		}
		verified = true
		return nil
	}
	closed := make(chan error, 1)
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: func() *tls.Config { return config }}, func() loop.Receiver {
		return &stream{data: func([]byte) {}, close: func(err error) { closed <- err }}
	})
	peer := tls.Client(dial(t, addr), own.Client())
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if e.Stats().Handshakes == 0 {
			return errors.New("no handshake")
		}
		return nil
	})
	e.Trust().Recheck()
	recv(t, closed, "the end of the connection")
	awaitPanic(t, e, "verify")
}

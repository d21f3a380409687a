package reactor

import (
	"crypto/tls"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/loop"
)

// verified is a stream that is told of an end of trust.
type verified struct {
	stream
	untrusted func()
}

func (v *verified) OnUntrusted() { v.untrusted() }

// tellOnce returns a stream that sends its connection to told when OnUntrusted is called.
func tellOnce(told chan loop.Conn) loop.Receiver {
	var conn loop.Conn
	return &verified{stream{open: func(c loop.Conn) { conn = c; c.Write([]byte("open")) }}, func() { told <- conn }}
}

// acceptFirst is config, but the handshake of the first peer accepts it. If late, that handshake
// lasts until the peer's certificate has ended.
func acceptFirst(config func() *tls.Config, late bool) func() *tls.Config {
	var again atomic.Bool
	c := config().Clone()
	verify := c.VerifyConnection
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if again.Swap(true) {
			return verify(state)
		}
		if late {
			<-time.After(time.Until(state.PeerCertificates[0].NotAfter) + 2*time.Millisecond)
		}
		return nil
	}
	return func() *tls.Config { return c }
}

// TestTLSPeerEnds: a connection whose peer's certificate ends is given up, at either end of it. The
// certificate may end during the handshake.
func TestTLSPeerEnds(t *testing.T) {
	ca := testcerts.New(t)
	identity := func(l testcerts.Leaf) *certs.Source {
		l.Names = []string{meshName}
		cert, key := ca.Issue(l)
		return openIdentity(t, testcerts.NewDir(t, ca, cert, key))
	}
	for _, c := range []struct {
		name          string
		dialled, late bool
	}{
		{"accepted", false, false},
		{"accepted, during its handshake", false, true},
		{"dialled", true, false},
		{"dialled, during its handshake", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := identity(testcerts.Leaf{}), identity(testcerts.Leaf{Lasts: 2 * time.Second})
			if c.dialled {
				server, client = client, server
			}
			serverConfig := acceptFirst(server.Server, c.late && !c.dialled)
			clientConfig := acceptFirst(client.Client, c.late && c.dialled)
			e := start(t, Options{DialTLS: func(_, _, _ string) func() *tls.Config { return clientConfig }})
			accepted, dialled := make(chan loop.Conn, 2), make(chan loop.Conn, 2)
			addr := listen(t, e, ListenOptions{TLS: serverConfig}, func() loop.Receiver { return tellOnce(accepted) })
			l := e.Loops()[0]
			l.Post(func() { l.Dial(addr, waitLimit, tellOnce(dialled)) })
			told, other := accepted, dialled
			if c.dialled {
				told, other = dialled, accepted
			}
			conn := recv(t, told, "the end of trust")
			awaitFailure(t, e, certs.CodeExpired, 1)
			on(t, l, func() { conn.Close() })
			if len(other) > 0 {
				t.Error("the other end does not trust a certificate that lasts")
			}
		})
	}
}

// TestTLSRecheck: a change of who is accepted reaches open connections, but for those in plain text. A connection whose stream is not
// told is closed.
func TestTLSRecheck(t *testing.T) {
	ca, other := testcerts.New(t), testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{meshName}})
	dir := testcerts.NewDir(t, ca, cert, key)
	var changes atomic.Int64
	e := start(t, Options{})
	own, err := certs.Open(certs.Options{
		Cert: dir.Cert, Key: dir.Key, CA: dir.CA, Peers: []string{meshName}, Interval: time.Millisecond,
		OnTrust: func() { changes.Add(1); e.Trust().Recheck() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	client := own.Client()
	plain := dial(t, listen(t, e, ListenOptions{}, echo))
	ask(t, plain, "before")
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	c := tls.Client(dial(t, addr), client)
	ask(t, c, "before")

	dir.Rotate(ca.Issue(testcerts.Leaf{Names: []string{meshName}}))
	eventually(t, func() error {
		if n := own.Stats().Loads; n < 2 {
			return fmt.Errorf("%d loads", n)
		}
		return nil
	})
	e.Trust().Recheck()
	ask(t, c, "after a rotation")
	if n := changes.Load(); n != 0 {
		t.Errorf("a certificate of our own changed who is accepted %d times", n)
	}
	dir.Write(dir.CA, other.PEM)
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("it ended with %q, %v", b, err)
	}
	awaitFailure(t, e, certs.CodeUnknownCA, 1)
	ask(t, plain, "after")
}

// TestTLSRecheckHandshake: a change of who is accepted reaches a connection whose handshake it
// meets, too.
func TestTLSRecheckHandshake(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	var refused atomic.Bool
	verifying, verified := make(chan struct{}), make(chan struct{})
	config := func() *tls.Config {
		c := own.Server().Clone()
		c.VerifyConnection = func(tls.ConnectionState) error {
			if refused.Load() {
				return &certs.VerifyError{Code: certs.CodeWrongPeer, Err: io.EOF}
			}
			close(verifying)
			<-verified
			return nil
		}
		return c
	}
	addr := listen(t, e, ListenOptions{TLS: config}, echo)
	c := tls.Client(dial(t, addr), own.Client())
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.ReadAll(c) }()
	recv(t, verifying, "the handshake to verify the peer")
	refused.Store(true)
	e.Trust().Recheck()
	for _, l := range e.Loops() {
		on(t, l, func() {}) // the loops have looked at their connections
	}
	close(verified)
	recv(t, done, "the end of the connection")
	awaitFailure(t, e, certs.CodeWrongPeer, 1)
}

// TestTrustExpiry: a peer is verified again when its certificate ends, and after maxRecheck. Then the next time is awaited, also if the
// clock was set back, or the end of the certificate has been accepted.
func TestTrustExpiry(t *testing.T) {
	ca := testcerts.New(t)
	own := NewIdentity(t)
	for name, leaf := range map[string]testcerts.Leaf{
		"ends soon": {Lasts: maxRecheck / 2}, "ends later": {Lasts: 3 * maxRecheck}, "has ended": {Expired: true},
	} {
		t.Run(name, func(t *testing.T) {
			leaf.Names = []string{meshName}
			pair, err := tls.X509KeyPair(ca.Issue(leaf))
			if err != nil {
				t.Fatal(err)
			}
			e := start(t, Options{})
			conns := make(chan loop.Conn, 1)
			var verified atomic.Int64
			config := own.Server().Clone()
			config.VerifyConnection = func(tls.ConnectionState) error { verified.Add(1); return nil }
			addr := listen(t, e, ListenOptions{TLS: func() *tls.Config { return config }}, func() loop.Receiver {
				return &stream{open: func(c loop.Conn) { conns <- c }}
			})
			client := tls.Client(dial(t, addr), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
			if err := client.Handshake(); err != nil {
				t.Fatal(err)
			}
			c := recv(t, conns, "the connection").(*conn)
			on(t, c.loop, func() {
				trust := &c.secure.trust
				end := trust.of.tls.ConnectionState().PeerCertificates[0].NotAfter.Add(time.Millisecond)
				check := func(when string, after time.Time) {
					from, to := after.Add(maxRecheck), time.Now().Add(maxRecheck)
					if name == "ends soon" {
						from, to = end, end
					}
					if at := trust.ends; at.Before(from) || at.After(to) || !trust.expiry.Armed() {
						t.Errorf("%s it is verified again at %s, want from %s to %s; armed: %t", when, at, from, to, trust.expiry.Armed())
					}
					c.loop.Stop(&trust.expiry)
				}
				check("at first", trust.verified)
				last, now := trust.verified, time.Now()
				trust.onExpiry()
				if check("after the clock was set back", now); trust.verified != last {
					t.Error("it is verified before its time")
				}
				if name == "has ended" {
					trust.verified = end.Add(-time.Second)
				}
				now = time.Now()
				trust.ends = now
				trust.onExpiry()
				check("after its time", now)
			})
			eventually(t, func() error {
				if n := verified.Load(); n != 2 {
					return fmt.Errorf("it was verified %d times", n)
				}
				return nil
			})
		})
	}
}

// TestTrustEndsOnce: a receiver is told one time that its peer is no longer accepted, and never after its connection has ended or
// left its loop.
func TestTrustEndsOnce(t *testing.T) {
	own := NewIdentity(t)
	for name, c := range map[string]struct {
		before func(t *testing.T, c loop.Conn)
		want   int
	}{
		"open":   {func(*testing.T, loop.Conn) {}, 1},
		"closed": {func(_ *testing.T, c loop.Conn) { c.Close() }, 0},
		"drains": {func(_ *testing.T, c loop.Conn) { c.Drain() }, 0},
		"detached": {func(t *testing.T, c loop.Conn) {
			s, err := c.Detach()
			if err != nil {
				t.Fatal(err)
			}
			s.Reset()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{})
			l := e.loops[0]
			told := 0
			conns := make(chan loop.Conn, 1)
			addr := listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
				return &verified{stream{open: func(c loop.Conn) { conns <- c }}, func() { told++ }}
			})
			client := tls.Client(dial(t, addr), own.Client())
			if err := client.Handshake(); err != nil {
				t.Fatal(err)
			}
			opened := recv(t, conns, "the connection")
			on(t, l, func() {
				trust := &opened.(*conn).secure.trust
				c.before(t, opened)
				trust.end(io.EOF)
				trust.end(io.EOF)
				if n := e.Stats().TLSFailures[CodeFailed]; told != c.want || n != int64(c.want) {
					t.Errorf("told %d times, counted %d times, want %d", told, n, c.want)
				}
				e.trust.verify(l, opened.(*conn)) // a connection that is not open has nothing to verify
			})
			on(t, l, func() {
				if e.trust.Recheck(); told != c.want {
					t.Errorf("told %d times", told)
				}
			})
			if n := e.Stats().Panics; n > 0 {
				t.Errorf("%d panics", n)
			}
		})
	}
}

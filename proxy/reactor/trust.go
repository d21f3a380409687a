package reactor

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// A handshake verifies the peer's certificate once, but connections last longer than
// certificates. So it is verified again, off the loop, when it ends and after Trust.Recheck.

// maxRecheck bounds the time until an end is compared with the clock again, which may be set.
const maxRecheck = time.Hour

// Trust verifies the peers of open connections with TLS again.
type Trust struct {
	reactor *Reactor
	changes atomic.Uint64 // calls of Recheck
}

// Recheck verifies the peers of all open connections with TLS again. The caller has changed
// who is accepted. It may be called from any goroutine.
func (t *Trust) Recheck() {
	t.changes.Add(1)
	for _, l := range t.reactor.loops {
		l.Post(func() { t.verify(l, l.conns...) })
	}
}

// verify verifies the peers of conns, which are on l, on a goroutine: a chain takes about 100 µs.
func (t *Trust) verify(l *eventLoop, conns ...*conn) {
	type peer struct {
		of     *secure
		verify func(tls.ConnectionState) error
		state  tls.ConnectionState
	}
	var peers []peer
	for _, c := range conns {
		if c.secure == nil || c.state != connOpen {
			continue
		}
		if verify := c.secure.config().VerifyConnection; verify != nil {
			peers = append(peers, peer{c.secure, verify, c.secure.tls.ConnectionState()})
		}
	}
	if len(peers) == 0 {
		return
	}
	t.reactor.spawn(func() {
		for _, p := range peers {
			if err := t.reactor.panics.Guard(func() error { return p.verify(p.state) }); err != nil {
				l.Post(func() { p.of.trust.end(err) })
			}
		}
	})
}

// peerTrust is the trust in the peer of one connection. It lasts until a verification fails.
type peerTrust struct {
	of       *secure
	changes  uint64     // Trust.changes before the handshake
	expiry   loop.Timer // armed while the connection is on its loop
	ends     time.Time  // when it is due
	verified time.Time  // when the last verification began, or the handshake
	ended    bool
}

// newPeerTrust is called before the handshake of s.
func newPeerTrust(s *secure) peerTrust {
	return peerTrust{of: s, changes: s.c.loop.reactor.trust.changes.Load(), verified: time.Now()}
}

// begin verifies the peer again if Recheck was called during the handshake, and from now on when a
// certificate ends.
func (p *peerTrust) begin() {
	c := p.of.c
	if t := &c.loop.reactor.trust; p.changes != t.changes.Load() {
		t.verify(c.loop, c)
	}
	p.expiry.Fire = p.onExpiry
	p.watch()
}

// watch arms the timer for the first end of a certificate of the peer's chain.
func (p *peerTrust) watch() {
	now, chain := time.Now(), p.of.tls.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return
	}
	p.ends = now.Add(maxRecheck)
	for _, cert := range chain {
		// A certificate is still valid at NotAfter. It may have ended during the handshake.
		if end := cert.NotAfter.Add(time.Millisecond); end.After(p.verified) && end.Before(p.ends) {
			p.ends = end
		}
	}
	p.of.c.loop.After(p.ends.Sub(now), &p.expiry)
}

// onExpiry verifies the peer again, unless the clock was set.
func (p *peerTrust) onExpiry() {
	c := p.of.c
	if now := time.Now(); !now.Before(p.ends) {
		p.verified = now
		c.loop.reactor.trust.verify(c.loop, c)
	}
	p.watch()
}

// stop ends watching. The connection leaves its loop.
func (p *peerTrust) stop() { p.of.c.loop.Stop(&p.expiry) }

// end has the receiver end the connection: its peer is no longer accepted, because of err.
func (p *peerTrust) end(err error) {
	c := p.of.c
	if c.state != connOpen || p.ended {
		return
	}
	defer c.loop.recovered(c)
	p.ended = true
	c.loop.reactor.tls.fail(c.remote, err)
	if s, ok := c.receiver.(loop.Verified); ok {
		s.OnUntrusted()
		return
	}
	c.Close()
}

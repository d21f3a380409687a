package reactor

import (
	"crypto/tls"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// A handshake verifies the peer's certificate once, but connections last longer than
// certificates. So it is verified again, off the loop, when it ends and after RecheckPeers.

// maxRecheck bounds the time until an end is compared with the clock again, which may be set.
const maxRecheck = time.Hour

// beginTrust verifies the peer again if RecheckPeers was called during the handshake, and from
// now on when a certificate ends.
func (s *secure) beginTrust() {
	if l := s.c.loop; s.changes != l.reactor.trustChanges.Load() {
		l.recheck(s.c)
	}
	s.watchPeer()
}

// watchPeer verifies the peer again when a certificate of its chain ends.
func (s *secure) watchPeer() {
	s.expiry.Fire = func() {
		if now := time.Now(); !now.Before(s.ends) {
			s.verified = now
			s.c.loop.recheck(s.c)
		}
		s.watchPeer()
	}
	now, chain := time.Now(), s.tls.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return
	}
	s.ends = now.Add(maxRecheck)
	for _, cert := range chain {
		// A certificate is still valid at NotAfter. It may have ended during the handshake.
		if end := cert.NotAfter.Add(time.Millisecond); end.After(s.verified) && end.Before(s.ends) {
			s.ends = end
		}
	}
	s.c.loop.After(s.ends.Sub(now), &s.expiry)
}

// RecheckPeers verifies the peers of all open connections with TLS again. The caller has changed
// who is accepted. It may be called from any goroutine.
func (r *Reactor) RecheckPeers() {
	r.trustChanges.Add(1)
	for _, l := range r.loops {
		l.Post(func() { l.recheck(l.conns...) })
	}
}

// recheck verifies the peers of conns again, on a goroutine: a chain takes about 100 µs.
func (l *eventLoop) recheck(conns ...*conn) {
	type peer struct {
		c      *conn
		verify func(tls.ConnectionState) error
		state  tls.ConnectionState
	}
	var peers []peer
	for _, c := range conns {
		if c.secure == nil || c.state != connOpen {
			continue
		}
		if verify := c.secure.config().VerifyConnection; verify != nil {
			peers = append(peers, peer{c, verify, c.secure.tls.ConnectionState()})
		}
	}
	if len(peers) == 0 {
		return
	}
	l.reactor.spawn(func() {
		for _, p := range peers {
			if err := p.verify(p.state); err != nil {
				l.Post(func() { p.c.onUntrusted(err) })
			}
		}
	})
}

// onUntrusted has the receiver end the connection: its peer is no longer accepted, because of err.
func (c *conn) onUntrusted(err error) {
	if c.state != connOpen || c.secure == nil || c.secure.untrusted {
		return
	}
	defer c.loop.recovered(c)
	c.secure.untrusted = true
	c.loop.reactor.tls.fail(c.remote, err)
	if s, ok := c.receiver.(loop.Verified); ok {
		s.OnUntrusted()
		return
	}
	c.Close()
}

package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// session is the accepting end of one link: it hands the events of the link to its parts, which use no field of each other.
type session struct {
	linkconn.Conn
	host     *downstream.Host
	listener *exchange.Listener // its Fixed route leads to the service

	input   input
	calls   calls
	leaving leaving
	ending  ending
	memory  memory

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of links on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	return func(l *exchange.Listener) loop.Receiver { return newSession(h, l) }
}

func newSession(h *downstream.Host, l *exchange.Listener) *session {
	s := &session{host: h, listener: l}
	s.input.session, s.leaving.session, s.ending.session, s.memory.session = s, s, s, s
	s.calls.init(s)
	limits := linkconn.Limits(h.Shard, s.memory.overBudget)
	s.Init(h.Shard, link.NewAcceptor(linkconn.Settings(h.Shard.Process), limits, &s.input), &s.input)
	return s
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.Transport.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.Transport) }

func (s *session) serviceName() string { return s.listener.Fixed.Service.Config.Name }

// opaque reports whether the service takes streams of bytes, and no requests.
func (s *session) opaque() bool { return s.listener.Fixed.Service.Opaque }

// InFlight implements linkconn.Handler.
func (s *session) InFlight() int { return s.calls.len() }

// BeforeFlush implements linkconn.Handler.
func (s *session) BeforeFlush() { s.calls.reportLoad() }

// OnFlushed implements linkconn.Handler.
func (s *session) OnFlushed() { s.ending.finish() }

// OnLost implements linkconn.Handler.
func (s *session) OnLost() { s.ending.lose() }

// OnIdle implements linkconn.Handler.
func (s *session) OnIdle() { s.ending.leaveIdle() }

func (s *session) OnOpen(c loop.Conn) {
	s.Attach(c)
	s.host.Add(s)
}

func (s *session) OnData(b []byte) {
	if s.State() == linkconn.Closed {
		return
	}
	if !s.Receive(b) {
		if s.InputError == link.ErrVersion {
			s.Transport.Write(link.AppendRefusal(nil))
			s.Transport.Drain()
		} else {
			s.Transport.Close()
		}
		s.ending.close()
		return
	}
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.ending.finish()
}

func (s *session) OnClose(error) {
	s.ending.close()
	s.host.OnClosed(s)
}

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified.
func (s *session) OnUntrusted() { s.ending.distrust() }

// Retire implements downstream.session. The peer sends elsewhere what a GOAWAY excludes.
func (s *session) Retire() { s.ending.drain() }

// Drain implements downstream.session.
func (s *session) Drain() { s.ending.drain() }

// CloseIdle implements downstream.session.
func (s *session) CloseIdle() { s.ending.closeIdle() }

// CloseNow implements shard.Holder.
func (s *session) CloseNow() { s.ending.closeNow() }

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.Transport.HasInput() }

// IdleFor implements downstream.session. An idle link closes without help.
func (s *session) IdleFor() time.Duration { return 0 }

// Buffered implements downstream.session.
func (s *session) Buffered() int { return s.memory.buffered() }

// Reclaimable implements downstream.session.
func (s *session) Reclaimable() int { return s.memory.reclaimable() }

// ShedLargest implements shard.Holder.
func (s *session) ShedLargest() bool { return s.memory.shedLargest() }

package http2

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
)

// session is a downstream connection of HTTP/2: it hands the events of the connection to its parts, which use no field of
// each other.
type session struct {
	*acceptor
	conn   loop.Conn
	origin downstream.Origin
	codec  http2.Conn

	input  input
	calls  calls
	output output
	ending ending
	memory memory
	keepalive

	downstream.SessionNode
}

// acceptor is what the sessions of one loop share.
type acceptor struct {
	host    *downstream.Host
	config  *config.Config // that the next two are made of
	options *http2.Options
	heads   *protocol.Limits // of the responses that goroutines write
	free    []*call
}

// NewAcceptor returns the Acceptor of HTTP/2 connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	a := &acceptor{host: h}
	return func(l *exchange.Listener) loop.Receiver { return newSession(a, l) }
}

func newSession(a *acceptor, l *exchange.Listener) *session {
	if a.config != a.host.Config {
		a.configure()
	}
	s := &session{acceptor: a, origin: downstream.Origin{Listener: l}}
	s.codec.InitServer(a.options, &s.input)
	s.input.init(s)
	s.calls.init(s)
	s.output.init(s)
	s.ending.init(s)
	s.memory.session = s
	s.keepalive.timer.Fire = s.onKeepalive
	return s
}

const (
	// What a sidecar adds to the head of a response.
	addedBytes   = 4 << 10
	addedHeaders = 32
)

func (a *acceptor) configure() {
	c, lim := &a.host.Config.Limits.HTTP2, *a.host.MessageLimits
	a.config = a.host.Config
	a.options = &http2.Options{
		Buffers: &a.host.Buffers, Limits: lim, Streams: c.Streams, Window: mux.StreamWindow,
		Floods: http2.Floods{
			Resets: c.Resets, Provoked: c.Provoked, Continuations: c.Continuations, Pings: c.Pings,
			Settings: c.Settings, EmptyData: c.EmptyData, Others: c.Others,
		},
	}
	a.heads = &protocol.Limits{Header: lim.Header + addedBytes, Headers: lim.Headers + addedHeaders, Message: protocol.NoLimit}
}

// OnOpen implements loop.Receiver. An HTTP/1.1 session that has met the preface calls it, too.
func (s *session) OnOpen(c loop.Conn) {
	s.conn = c
	s.output.open(c)
	s.origin = downstream.OriginOf(s.origin.Listener, c.RemoteAddr())
	s.host.Add(s)
	s.input.startTimeout()
	s.host.Loop.After(keepaliveInterval, &s.keepalive.timer)
	s.output.schedule(false)
	if s.origin.Listener.Closing || s.host.Process.Draining.Load() { // accepted just before the listener closed
		s.ending.drain()
	}
}

func (s *session) OnData(b []byte) {
	if s.ending.over() {
		return
	}
	s.keepalive.heard = true
	err := s.input.receive(b)
	switch {
	case s.ending.over():
		return
	case err != nil:
		s.ending.fail(err)
		return
	}
	s.memory.recount()
	s.input.startTimeout()
	s.calls.watch()
	s.output.schedule(s.calls.len() == 0)
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.ending.finish()
}

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser.
func (s *session) OnEnd() (stays bool) { return s.ending.endInput() }

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified.
func (s *session) OnUntrusted() { s.ending.distrust() }

func (s *session) OnClose(error) {
	s.ending.close()
	s.input.release()
	s.output.stop()
	s.host.OnClosed(s)
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

// Retire implements downstream.session. The client sends its next requests elsewhere.
func (s *session) Retire() { s.ending.drain() }

// Drain implements downstream.session.
func (s *session) Drain() { s.ending.drain() }

// CloseIdle implements downstream.session.
func (s *session) CloseIdle() { s.ending.closeIdle() }

// CloseNow implements shard.Holder.
func (s *session) CloseNow() { s.ending.closeNow() }

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.conn.HasInput() }

// IdleFor implements downstream.session.
func (s *session) IdleFor() time.Duration { return s.input.idleFor() }

// Buffered implements downstream.session.
func (s *session) Buffered() int { return s.memory.use().Held }

// Reclaimable implements downstream.session.
func (s *session) Reclaimable() int { return s.memory.reclaimable() }

// ShedLargest implements shard.Holder.
func (s *session) ShedLargest() bool { return s.memory.shedLargest() }

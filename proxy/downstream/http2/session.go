package http2

import (
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// session is a downstream connection of HTTP/2.
type session struct {
	*acceptor
	conn   loop.Conn
	origin downstream.Origin

	state     sessionState
	codec     http2.Conn
	calls     []*call              // whose stream or pipe is open; call.index is the index of each
	cancelled []*exchange.Exchange // that the application still works on; CallIndex is the index of each
	pending   int                  // calls whose request is incomplete, or whose response waits for the client
	requests  int                  // received so far
	feeding   bool                 // the codec is in Feed
	account   shard.TableAccount

	untrusted bool          // the client's certificate is no longer accepted
	ended     bool          // the client sends nothing more
	answered  bool          // it has got a response, or a part of one, since grace was armed
	watchDue  time.Duration // when watch is due
	late      bool          // watch was late, and put off once

	flush    loop.Flush
	watch    loop.Timer     // armed while calls are pending
	grace    loop.Timer     // armed while draining
	timeout  loop.Timeout   // idle and head timeouts
	outbound shard.Outbound // write timeout
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
	return func(l *exchange.Listener) loop.Stream { return newSession(a, l) }
}

func newSession(a *acceptor, l *exchange.Listener) *session {
	if a.config != a.host.Config {
		a.configure()
	}
	s := &session{acceptor: a, origin: downstream.Origin{Listener: l}}
	s.codec.Init(a.options, (*events)(s))
	s.timeout.Init(a.host.Loop, s.onTimeout)
	s.outbound.Init(a.host.Shard)
	s.flush.Do = s.write
	s.watch.Fire, s.grace.Fire, s.keepalive.timer.Fire = s.onWatch, s.onGrace, s.onKeepalive
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
		Buffers: &a.host.Buffers, Limits: lim, Streams: c.Streams,
		Floods: http2.Floods{
			Resets: c.Resets, Provoked: c.Provoked, Continuations: c.Continuations, Pings: c.Pings,
			Settings: c.Settings, EmptyData: c.EmptyData, Others: c.Others,
		},
	}
	a.heads = &protocol.Limits{Header: lim.Header + addedBytes, Headers: lim.Headers + addedHeaders, Message: protocol.NoLimit}
}

// OnOpen implements loop.Stream. A session of HTTP/1.1 that has met the preface calls it, too.
func (s *session) OnOpen(c loop.Conn) {
	s.conn, s.outbound.Conn = c, c
	s.origin = downstream.OriginOf(s.origin.Listener, c.RemoteAddr())
	s.host.Add(s)
	s.startTimeout()
	s.host.Loop.After(keepaliveInterval, &s.keepalive.timer)
	s.schedule(false)
	if s.origin.Listener.Closing || s.host.Process.Draining.Load() { // accepted just before the listener closed
		s.Drain()
	}
}

func (s *session) OnData(b []byte) {
	if s.state == closed {
		return
	}
	s.feeding, s.keepalive.heard = true, true
	s.codec.Advance(s.host.Loop.Now())
	err := s.codec.Feed(b)
	s.feeding = false
	switch {
	case s.state == closed:
		return
	case err != nil:
		s.fail(err)
		return
	}
	s.recount()
	s.startTimeout()
	s.watchPending()
	s.schedule(len(s.calls) == 0)
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.finishDrain()
}

// fail ends a connection whose peer broke a rule. The codec has queued a GOAWAY.
func (s *session) fail(err error) {
	s.report("HTTP/2 connection closed", err.(*http2.Error))
	s.writeLast()
	s.close()
	s.conn.Drain()
}

// report counts and logs what the client did wrong.
func (s *session) report(what string, why *http2.Error) {
	f := fault.HTTP2Error
	if strings.HasPrefix(why.Reason, floodPrefix) {
		f = fault.HTTP2Flood
	}
	s.host.Stats.Failed(s.origin.Listener.Name, f)
	s.host.Stats.Refused(s.origin.Listener.Name)
	s.host.Stats.Misused(why.Reason)
	if omitted, due := s.host.Log.Due(what, s.origin.Listener.Name, why.Reason); due {
		s.host.Log.Example(what, omitted, "listener", s.origin.Listener.Name, "code", f.Code,
			"peer", s.conn.RemoteAddr(), "reason", why.Reason, "error", why.Text)
	}
}

const floodPrefix = "h2_flood_"

// schedule sends what the codec has: at once if alone, with no other request in flight; else with
// the other frames of the turn, at its end.
func (s *session) schedule(alone bool) {
	switch {
	case s.feeding || s.state == closed || !s.codec.Ready():
	case alone:
		s.write()
	default:
		s.host.Loop.Defer(&s.flush)
	}
}

// write writes the frames of the codec, as far as the client reads them.
func (s *session) write() {
	if s.state == closed {
		return
	}
	for s.codec.Ready() {
		if s.conn.Buffered() > mux.MaxOutbound {
			s.conn.AwaitRoom(mux.MaxOutbound, &s.flush)
			break
		}
		b := s.codec.Output(mux.BatchSize)
		if s.state == closed {
			return
		}
		if len(b) > 0 {
			s.outbound.Write(b)
		}
	}
	s.recount()
	s.outbound.Watch()
	s.startTimeout()
	s.watchPending()
	s.finishDrain()
}

// writeLast writes what is queued behind a failure.
func (s *session) writeLast() {
	if b := s.codec.Output(mux.BatchSize); len(b) > 0 {
		s.outbound.Write(b)
	}
	s.outbound.Watch()
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

// Retire drains the connection: the client sends its next requests elsewhere.
func (s *session) Retire() { s.Drain() }

// Drain tells the client to send no more requests, and closes once all have their responses.
func (s *session) Drain() {
	if s.state != open {
		return
	}
	s.state.become(draining)
	s.codec.GoAway(http2.NoError)
	s.host.Loop.After(drainGrace, &s.grace)
	if !s.feeding {
		s.host.Loop.Defer(&s.flush)
	}
}

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified. The requests in flight have timeouts.drain to get their
// responses. Later ones get none.
func (s *session) OnUntrusted() {
	s.untrusted = true
	s.limitDrain(s.host.Config.Timeouts.Drain)
}

// limitDrain drains the session, and has onGrace end it after limit. Later requests get no response.
func (s *session) limitDrain(limit time.Duration) {
	s.Drain()
	if s.state == closed {
		return
	}
	s.codec.GoAway(http2.NoError) // final
	s.host.Loop.After(limit, &s.grace)
	s.schedule(false)
}

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser. Whole requests get their responses, unless none comes for timeouts.half_close.
// Those that are cut short are cancelled, as if the client had reset them. The client can't respond to a PING.
func (s *session) OnEnd() (stays bool) {
	limit := s.host.Config.Timeouts.HalfClose
	if limit == 0 || s.state == closed {
		return false
	}
	for i := len(s.calls) - 1; i >= 0; i-- { // cancel may remove the call
		if c := s.calls[i]; c.stream != nil && !c.stream.Ended() {
			s.codec.Reset(c.stream, http2.Cancel)
			c.cancel()
		}
	}
	if len(s.calls) == 0 && !s.codec.Ready() && s.conn.Buffered() == 0 {
		return false
	}
	s.ended, s.answered = true, false
	s.host.Loop.Stop(&s.keepalive.timer)
	s.limitDrain(limit)
	s.finishDrain()
	return true
}

// finishDrain closes a draining connection behind the last response.
func (s *session) finishDrain() {
	if s.state == draining && !s.feeding && s.codec.Final() && s.codec.Open() == 0 && !s.codec.Ready() {
		s.close()
		s.conn.Drain()
	}
}

func (s *session) OnClose(error) {
	s.close()
	s.timeout.Close()
	s.outbound.Stop()
	s.host.OnClosed(s)
}

// close cancels the requests of the client, which can't get their responses any more. The caller
// closes the connection.
func (s *session) close() {
	if s.state == closed {
		return
	}
	s.state.become(closed)
	s.timeout.Stop()
	for _, t := range [...]*loop.Timer{&s.watch, &s.grace, &s.keepalive.timer} {
		s.host.Loop.Stop(t)
	}
	calls := s.calls
	s.calls = nil
	for _, c := range calls {
		c.cancel()
	}
	s.codec.Close()
	s.recount()
}

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
	"github.com/remora-proxy/remora/proxy/shard"
)

// session is a downstream connection of HTTP/2, in four parts. They use no field of each other.
type session struct {
	*acceptor
	conn   loop.Conn
	origin downstream.Origin
	codec  http2.Conn

	input  input
	calls  calls
	output output
	ending ending
	keepalive

	account shard.TableAccount // of the codec, and of pending calls

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
		Buffers: &a.host.Buffers, Limits: lim, Streams: c.Streams,
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
		s.Drain()
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
		s.fail(err)
		return
	}
	s.recount()
	s.input.startTimeout()
	s.calls.watch()
	s.output.schedule(s.calls.len() == 0)
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.ending.finish()
}

// fail ends a connection whose peer broke a rule. The codec has queued a GOAWAY.
func (s *session) fail(err error) {
	s.input.report("HTTP/2 connection closed", err.(*http2.Error))
	s.output.last()
	s.close()
	s.conn.Drain()
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

// Retire drains the connection: the client sends its next requests elsewhere.
func (s *session) Retire() { s.Drain() }

// Drain tells the client to send no more requests, and closes once all have their responses.
func (s *session) Drain() { s.ending.drain() }

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified. The requests in flight have timeouts.drain to get their
// responses. Later ones get none.
func (s *session) OnUntrusted() { s.ending.distrust() }

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser. Whole requests get their responses, unless none comes for timeouts.half_close.
// Those that are cut short are cancelled, as if the client had reset them. The client can't respond to a PING.
func (s *session) OnEnd() (stays bool) {
	limit := s.host.Config.Timeouts.HalfClose
	if limit == 0 || s.ending.over() {
		return false
	}
	s.calls.cancelIncomplete()
	if s.calls.len() == 0 && !s.codec.Ready() && s.conn.Buffered() == 0 {
		return false
	}
	s.host.Loop.Stop(&s.keepalive.timer)
	s.ending.endInput(limit)
	return true
}

func (s *session) OnClose(error) {
	s.close()
	s.input.release()
	s.output.stop()
	s.host.OnClosed(s)
}

// close cancels the requests of the client, which can't get their responses any more. The caller
// closes the connection.
func (s *session) close() {
	if s.ending.over() {
		return
	}
	s.ending.stop()
	s.input.stop()
	s.host.Loop.Stop(&s.keepalive.timer)
	s.calls.cancelAll()
	s.codec.Close()
	s.recount()
}

func (s *session) CloseNow() {
	inFlight := s.calls.inFlight()
	s.close()
	for _, ex := range inFlight {
		ex.AbandonNow()
	}
	s.host.Remove(s)
	s.output.stop()
	s.conn.Close()
}

// CloseIdle closes an idle session. The client learns that no request on its way was processed.
func (s *session) CloseIdle() {
	if s.ending.over() {
		return
	}
	s.codec.Drain()
	s.codec.GoAway(http2.NoError)
	s.output.last()
	s.close()
	s.conn.Drain()
}

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.conn.HasInput() }

// IdleFor implements downstream.session.
func (s *session) IdleFor() time.Duration {
	if s.calls.len() > 0 {
		return 0
	}
	return s.input.idleFor()
}

// overBudget reports whether ex must not grow by n bytes: memory is short, and the connection holds
// more than its share.
func (s *session) overBudget(ex *exchange.Exchange, n int) bool {
	return s.host.Process.Budget.Full(s.account.Messages()+ex.Held) && s.use().Excludes(s.host.Shard, ex.HeldByRequest()+n)
}

// OverShare implements exchange.Caller.
func (s *session) OverShare(ex *exchange.Exchange) bool {
	return s.use().Excludes(s.host.Shard, ex.HeldByRequest())
}

func (s *session) use() shard.Use {
	held, unread := s.calls.held()
	out := s.output.counted()
	return shard.Use{Held: held + s.codec.BufferedFrames() + out + s.account.Tables(), Unread: unread + out, Requests: s.calls.len()}
}

// Buffered implements shard.Holder.
func (s *session) Buffered() int { return s.use().Held }

// recount charges the memory that the codec and pending calls hold to limits.buffered, tables included. The bodies of
// messages are charged by their exchange or response, and those of streams by their pipe.
func (s *session) recount() {
	if s.ending.over() {
		s.account.Count(s.host.Shard, 0, 0)
		return
	}
	s.account.Count(s.host.Shard, s.codec.Encoded()+s.calls.extra(), s.codec.Interned())
}

// Reclaimable returns the bytes of the tables of a connection that carries no request.
func (s *session) Reclaimable() int {
	if s.calls.len() > 0 {
		return 0
	}
	return s.account.Tables()
}

// ShedLargest implements shard.Holder. It drops a request that is incomplete or in flight, or a
// response that the client does not read.
func (s *session) ShedLargest() bool {
	c := s.calls.largest()
	if c == nil {
		return false
	}
	c.drop()
	s.recount()
	s.output.schedule(false)
	return true
}

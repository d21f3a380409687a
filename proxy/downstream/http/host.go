package http

import (
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// host is what the sessions of a loop share. Most of them wait for a request, so what only a
// request needs comes from free lists.
type host struct {
	*downstream.Host
	freeIncoming shard.FreeList[*incoming]
	freeCalls    shard.FreeList[[]call] // arrays without a call, for at most maxFreeCalls
}

// maxFreeCalls is the longest array of calls that is kept. limits.pipelined may allow far more.
const maxFreeCalls = 16

// incoming is what a session needs while it receives a request, while a request waits to leave the loop, and
// after the end of its input. While a request waits, head and body are those of that request.
type incoming struct {
	session *session // nil in the free list
	head    http1.Head
	body    http1.Body
	kind    stats.StreamKind // of the request that waits to leave
	timeout loop.Timeout     // of the head and the body, or of the next response
	awaited int              // responses that were due when that began
}

func (h *host) newIncoming() *incoming {
	in, ok := h.freeIncoming.Take()
	if !ok {
		in = new(incoming)
		in.timeout.Init(h.Loop, func(k loop.TimeoutKind) { in.session.onTimeout(k) })
	}
	return in
}

// putIncoming takes back in. Its timer may stay armed only in the free list: the queue of timers
// would keep in until the timer is due.
func (h *host) putIncoming(in *incoming) {
	in.session = nil
	in.timeout.Stop()
	if !h.freeIncoming.Put(in) {
		in.timeout.Close()
	}
}

// startTimeout starts a timeout of the request that is being received.
func (s *session) startTimeout(k loop.TimeoutKind, d time.Duration) {
	s.host.StopIdle(&s.SessionNode)
	s.timeout.Start(k, d)
}

// startIdle starts timeouts.idle.
func (s *session) startIdle() {
	if s.incoming != nil { // of a tunnel
		s.timeout.Stop()
	}
	s.host.StartIdle(&s.SessionNode)
}

func (s *session) stopTimeout() {
	s.host.StopIdle(&s.SessionNode)
	if s.incoming != nil {
		s.timeout.Stop()
	}
}

// beginRequest prepares for a request whose first bytes have arrived.
func (s *session) beginRequest() {
	s.cur = s.host.Pool.Exchange(s)
	s.incoming = s.host.newIncoming()
	s.incoming.session = s
	s.head.Secure = s.origin.Listener.Secure && s.tunnel == nil
}

// endRequest is called when a request was received, or will not be.
func (s *session) endRequest() {
	if s.incoming != nil {
		s.head.Reset()
		s.host.putIncoming(s.incoming)
		s.incoming = nil
	}
}

// leastMoved is how many requests a connection must have made before it may move to another loop. One
// that lasts for a few would not be worth it.
const leastMoved = 8

var _ loop.Movable = (*session)(nil)

// Leave implements loop.Movable. The requests so far count on.
func (s *session) Leave() (requests int, ok bool) {
	return s.requests, s.requests >= leastMoved && s.waits() && s.in == nil && s.incoming == nil && s.tunnel == nil &&
		!s.retiring && s.output == outputIdle
}

// Resume implements loop.Movable. OnOpen may have begun to drain the session, which then waits for
// the request that has made it move.
func (s *session) Resume(requests int) { s.requests = requests }

package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// host is what the sessions of a loop share. Most of them wait for a request, so what only a
// request needs comes from free lists.
type host struct {
	*downstream.Host
	freeIncoming shard.FreeList[*incoming]
	freeCalls    shard.FreeList[[]call] // arrays without a call, for at most maxFreeCalls
}

// maxFreeCalls is the longest array of calls that is kept, as append makes it for 9 to 17. limits.pipelined may allow
// far more.
const maxFreeCalls = 17

// incoming is what a session needs while it receives a request, while a request waits to leave the loop, and after
// the end of its input. While a request waits, head and body are those of that request.
type incoming struct {
	session *session           // nil in the free list
	ex      *exchange.Exchange // being received; nil for none
	head    http1.Head
	body    http1.Body
	handoff
	timeout loop.Timeout // of the head and the body, or of the next response
	awaited int          // responses that were due when that began
}

// holdsRequest reports whether there is an exchange. in may be nil.
func (in *incoming) holdsRequest() bool { return in != nil && in.ex != nil }

// takeExchange removes and returns the exchange. The caller owns it.
func (in *incoming) takeExchange() *exchange.Exchange {
	ex := in.ex
	in.ex = nil
	return ex
}

func (h *host) newIncoming(s *session) *incoming {
	in, ok := h.freeIncoming.Take()
	if !ok {
		in = new(incoming)
		in.timeout.Init(h.Loop, func(k loop.TimeoutKind) { in.session.timeouts().onTimeout(k) })
	}
	in.session = s
	return in
}

// putIncoming takes back in, with its exchange. Its timer may stay armed only in the free list: the queue of timers
// would keep in until the timer is due.
func (h *host) putIncoming(in *incoming) {
	if in.ex != nil {
		h.Pool.Recycle(in.ex)
		in.ex = nil
	}
	in.head.Reset()
	in.handoff = handoff{}
	in.session = nil
	in.timeout.Stop()
	if !h.freeIncoming.Put(in) {
		in.timeout.Close()
	}
}

// PlaintextResponse returns the response to a client in plain text of a listener with TLS.
func PlaintextResponse() []byte {
	return downstream.AppendFailure(nil, fault.TLSRequired, nil, nil, http1.ResponseFlags{Minor: 1, Close: true})
}

package exchange

import (
	"cmp"
	"time"
	"unsafe"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// message is the request of an exchange, with its memory, which it counts in the budget of its loop.
type message struct {
	shard      *shard.Shard
	Request    protocol.Request
	HeadBuffer *bytebufferpool.ByteBuffer // Request's slices alias it
	BodyBuffer *bytebufferpool.ByteBuffer // Request.Body aliases it; nil if it aliases HeadBuffer
	Held       int                        // bytes of both, and of the fields, that the budget knows of
	facts
	additions
}

// facts is what a session finds out about one request. The next request begins with the zero value.
type facts struct {
	batch        bool           // the request, or its route, is batch
	NoHedge      bool           // the caller opted out of hedges, or the request is pinned
	headChecked  bool           // rules and rate limits were applied when the head arrived
	ClassName    []byte         // as the caller named the request's class; aliases HeadBuffer
	Arrived      time.Duration  // when the head of a request that had to wait arrived; 0 means now
	Refusal      *fault.Failure // why the request must not be sent on; nil means it may
	RequestID    []byte         // of a request over HTTP; aliases HeadBuffer or NewID
	OriginalPath []byte         // before the listener or the route changed it; aliases HeadBuffer
	OriginalHost []byte         // before the route changed it; aliases HeadBuffer
}

// additions is the memory of what a downstream session adds to a request. It is kept for the next request.
type additions struct {
	NewID       [32]byte // an id that was made here
	Forwarded   []byte   // the value of X-Forwarded-For, if one was extended
	MaxForwards []byte   // the value of Max-Forwards, if it was lowered
	Path        []byte   // the path, if the listener or the route changed it
	Edited      []byte   // the values of headers that the route sets
	newCookie   []byte   // Set-Cookie of the session that the request began; empty means none
}

// An exchange keeps this much memory for the next request: for the headers of a route, for X-Forwarded-For, and for a
// rewritten path.
const (
	maxEdited    = 512
	maxForwarded = 256
	maxRewritten = 512
)

// exchangeBytes is what an exchange counts as beside its request, which may be much shorter.
const exchangeBytes = int(unsafe.Sizeof(Exchange{}))

// Charge counts the request's memory in the budget; it is called again when that has grown.
func (m *message) Charge() {
	req := &m.Request
	m.shard.Recount(&m.Held, exchangeBytes+protocol.HeldBy(m.HeadBuffer, m.BodyBuffer, req.Headers, req.Trailers))
}

// ChargeHead counts n bytes in all for a head that is still being decoded, before it takes them.
func (m *message) ChargeHead(n int) { m.shard.Recount(&m.Held, exchangeBytes+n) }

// HeldByRequest returns what of Held is the request's own memory, as far as it was charged.
func (m *message) HeldByRequest() int { return max(0, m.Held-exchangeBytes) }

// SetTimeout sets a deadline of the caller's: d after the request arrived. The soonest counts.
func (m *message) SetTimeout(d time.Duration) {
	req, at := &m.Request, time.Duration(-1) // passed, since 0 means none
	if d > 0 {
		at = cmp.Or(m.Arrived, m.shard.Loop.Now()) + min(d, protocol.MaxTimeout)
	}
	if req.Deadline == 0 || at < req.Deadline {
		req.Deadline = at
	}
	req.Timed = true
}

// TimeLeft returns how long the request may take from now on: until its deadline, and at most as
// long as r allows. 0 or less means that its time is up.
func (m *message) TimeLeft(r *Route, now time.Duration) time.Duration {
	if m.Request.Deadline == 0 {
		return r.Timeout
	}
	return min(r.Timeout, m.Request.Deadline-now)
}

// StreamTimeLeft is TimeLeft of a request with its Route that becomes a stream. Without a route it has timeouts.idle.
func (ex *Exchange) StreamTimeLeft() time.Duration {
	now, idle := ex.shard.Loop.Now(), ex.shard.Config.Timeouts.Idle
	switch {
	case ex.Route != nil:
		return ex.TimeLeft(ex.Route, now)
	case ex.Request.Deadline != 0:
		return min(idle, ex.Request.Deadline-now)
	}
	return idle
}

// NoteLogin notes what credentials of the request do to the connection that it is sent on. A login in
// several steps is refused: the next one could come to another connection.
func (m *message) NoteLogin(l protocol.Login) {
	switch l {
	case protocol.NoLogin:
	case protocol.LoginOnce:
		m.Request.Login = true
	case protocol.LoginSteps:
		m.Request.Login = true
		m.RefuseLater(fault.ConnectionLogin)
	}
}

// RefuseLater notes why the request must not be sent on. The first reason counts.
func (m *message) RefuseLater(f *fault.Failure) {
	if m.Refusal == nil {
		m.Refusal = f
	}
}

// size is the length of the request in bytes.
func (m *message) size() int { return protocol.Len(m.HeadBuffer) + protocol.Len(m.BodyBuffer) }

func (m *message) releaseRequest() {
	m.shard.Buffers.Release(&m.HeadBuffer)
	m.shard.Buffers.Release(&m.BodyBuffer)
	m.shard.Recount(&m.Held, 0)
	m.Request.Reset()
}

// Buffered is the number of bytes that the exchange and its race hold.
func (ex *Exchange) Buffered() int { return ex.Held + ex.race.Buffered() }

// overShare reports whether memory is short, and the caller's connection holds more than its share.
func (ex *Exchange) overShare() bool {
	return ex.shard.Process.Budget.Full(ex.Held) && ex.caller.OverShare(ex)
}

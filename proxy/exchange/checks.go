package exchange

import (
	"time"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Checks are what a request must pass before any service is asked. Those that several protocols share are in this file,
// with the ways in which requests come to them; limits of a protocol's own input are with its session. The order of a way decides which failure a client sees:
//
//	check                               message  Leaving  Tunnel  Unread  failure
//	a route that answers by itself          –       1        –       –    (none: it stays, as a message)
//	rate limit of the listener              1       2        –       3    RateLimited
//	what the session has found              2       3        –       –    message.Refusal
//	rules of listener, route, service       3       4        1       5    NotAllowed
//	a route, or a way on without one        4       5        2       2    NoRoute
//	what the bytes of a tunnel may do       –       –        3       –    NotAllowed
//	time left                               5       in turn  –       –    Deadline
//	length of the body                      –       6        –       –    Leaving.Body
//	the process drains                      –       7        4       1    Draining
//	memory of the process                   –       8        5       4    Overloaded
//	rate limit of the route                 6       9        –       –    RateLimited
//
// message is the way of Begin, and of a Head whose body has not arrived; Begin does not check such a request again. An
// HTTP/2 request that leaves passes message as a Head, then Process and InTime. So it is RateLimited by its route before
// it is Overloaded, and an HTTP/1.1 request after. A link says Draining first.
//
// Goroutines ask the same allow.Rules for what they read: the head of a stream from a link, and connections of listeners
// with protocol: tcp (proxy/stream). The bounds of the service come later: see admit, and race.Open for streams.
type Checks struct {
	ex *Exchange
	at *Listener
}

// Checks returns the checks of the request, which came in at l.
func (ex *Exchange) Checks(l *Listener) Checks { return Checks{ex, l} }

// message checks a request that stays on the loop, whose route is r, or nil.
func (c Checks) message(r *Route, now time.Duration) *fault.Failure {
	switch ex := c.ex; {
	case c.at.Rate != nil && c.overRate(c.at.Rate, now):
		return fault.RateLimited
	case ex.Refusal != nil:
		return ex.Refusal
	case c.at.ruled(r) && c.forbids(r):
		return fault.NotAllowed
	case r == nil:
		return fault.NoRoute
	case ex.TimeLeft(r, now) <= 0:
		return fault.Deadline
	case r.Rate != nil && c.overRate(r.Rate, now):
		return fault.RateLimited
	}
	return nil
}

// Head checks a request whose body has not arrived. Begin does not check it again. The exchange keeps the route r,
// which may be nil. final reports whether the request needs no body: Begin responds at once, with a failure or with the
// answer of the route.
func (c Checks) Head(r *Route) (final bool) {
	ex := c.ex
	ex.Refusal = c.message(r, ex.shard.Loop.Now())
	ex.Route, ex.headChecked = r, true
	return ex.Refusal != nil || r.Answer != nil
}

// MessageHead is Head for a message, which also asks the bounds of the service. A route that may respond although the
// service refuses the request needs the body first.
func (c Checks) MessageHead(r *Route) (final bool) {
	if c.Head(r) {
		return true
	}
	ex := c.ex
	if r.early == nil && r.outcomes == nil {
		ex.refused = r.Service.Bounds.Refuses(ex.shard.Loop.Now(), r.batch || ex.Request.Batch, ex)
	}
	return ex.refused != nil
}

// Leaving is what a session knows of a request that is to leave the loop as a stream.
type Leaving struct {
	Counted  int            // bytes that are counted for it, beside those of the exchange
	Lasting  bool           // the stream may last for hours
	Direct   bool           // it may go on without a route
	Accepted bool           // it is a CONNECT that the session accepts: Tunnel checks what comes through it
	Opaque   bool           // Tunnel: something takes bytes that are no HTTP
	Body     *fault.Failure // why the body can't be that of a stream; nil if it can
}

// Leaving checks a request that is to leave the loop with its Route, before its turn. stays reports whether it does not
// leave, since the route answers it. Its time is checked in its turn, by InTime.
func (c Checks) Leaving(s *Leaving) (stays bool, f *fault.Failure) {
	ex, now := c.ex, c.ex.shard.Loop.Now()
	r := ex.Route
	switch {
	case r != nil && r.Answer != nil:
		return true, nil
	case c.at.Rate != nil && c.overRate(c.at.Rate, now):
		return false, fault.RateLimited
	case ex.Refusal != nil:
		return false, ex.Refusal
	case s.Accepted:
	case c.at.ruled(r) && c.forbids(r):
		return false, fault.NotAllowed
	case r == nil && !s.Direct:
		return false, fault.NoRoute
	}
	if s.Body != nil {
		return false, s.Body
	}
	if f = c.process(s); f == nil && r != nil && r.Rate != nil && c.overRate(r.Rate, now) {
		f = fault.RateLimited
	}
	return false, f
}

// Tunnel checks a CONNECT that was Accepted, once bytes have come through it that are no HTTP.
func (c Checks) Tunnel(s *Leaving) *fault.Failure {
	switch r := c.ex.Route; {
	case c.at.ruled(r) && c.forbids(r):
		return fault.NotAllowed
	case r == nil && !s.Direct:
		return fault.NoRoute
	case !s.Opaque:
		return fault.NotAllowed
	}
	return c.process(s)
}

func (c Checks) process(s *Leaving) *fault.Failure {
	return Process(c.ex.shard.Process, s.Counted+c.ex.Held, s.Lasting)
}

// Process applies the limits of the process to a request that is to leave the loop. own is the number of bytes that are
// counted for it. lasting reports whether the stream may last for hours: a draining process takes none.
func Process(p *shard.Process, own int, lasting bool) *fault.Failure {
	switch {
	case lasting && p.Draining.Load():
		return fault.Draining
	case p.Budget.Full(own):
		return fault.Overloaded
	}
	return nil
}

// InTime checks the time of a request that leaves the loop now.
func (c Checks) InTime() *fault.Failure {
	if c.ex.StreamTimeLeft() <= 0 {
		return fault.Deadline
	}
	return nil
}

// Unread is a stream over a link, whose head comes later if it has one.
type Unread struct {
	Counted int  // bytes that are counted for it
	Taken   bool // the service of the listener takes streams of its kind
	Opaque  bool // it has no head, so the rules see nothing but its peer
}

// Check checks a stream from a session on the loop of w.
func (s *Unread) Check(from Caller, w *shard.Shard) *fault.Failure {
	l := from.Listener()
	switch {
	case w.Process.Draining.Load():
		return fault.Draining
	case !s.Taken:
		return fault.NoRoute
	case l.Rate != nil && limited(l.Rate, w.Loop.Now(), from, nil):
		return fault.RateLimited
	}
	f := Process(w.Process, s.Counted, false)
	if f == nil && s.Opaque && l.forbids(l.Fixed, &allow.Call{}, from, w) {
		f = fault.NotAllowed
	}
	return f
}

// overRate takes a token of a rate limit, unless Head has taken it. It reports whether there was none.
func (c Checks) overRate(l *limit.Keyed, now time.Duration) bool {
	return !c.ex.headChecked && limited(l, now, c.ex.caller, &c.ex.Request)
}

// forbids reports whether the rules refuse the request, which has the route r, unless Head has asked them. Without a
// route the rules of the listener are asked.
func (c Checks) forbids(r *Route) bool {
	ex := c.ex
	if ex.headChecked {
		return false
	}
	call := allow.Call{Req: &ex.Request, Path: ex.Request.Path}
	if ex.OriginalPath != nil {
		call.Path = ex.OriginalPath
	}
	return c.at.forbids(r, &call, ex.caller, ex.shard)
}

// forbids reports whether the rules refuse a call of from, which has the route r.
func (l *Listener) forbids(r *Route, call *allow.Call, from Caller, w *shard.Shard) bool {
	call.Peer = from.PeerNames()
	rules := l.Rules(r)
	return rules.Refuse(call, from.RemoteAddr(), w.Log)
}

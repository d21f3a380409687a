package exchange

import (
	"cmp"
	"strconv"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/route"
)

// message is the request of an exchange, with its memory.
type message struct {
	Request    protocol.Request
	attempt    uint8                      // Request.Attempt as it came; each attempt sets its own
	hedged     bool                       // Request.Hedge as it came
	batch      bool                       // the request, or its route, is batch
	NoHedge    bool                       // the caller opted out of hedges
	ClassName  []byte                     // as the caller named the request's class; aliases HeadBuffer
	Arrived    time.Duration              // when the head of a request that had to wait arrived; 0 means now
	HeadBuffer *bytebufferpool.ByteBuffer // Request's slices alias it
	BodyBuffer *bytebufferpool.ByteBuffer // Request.Body aliases it; nil if it aliases HeadBuffer
	Held       int                        // bytes of both that the budget knows of
	Refusal    *fault.Failure             // why the request must not be sent on; nil means it may

	envelope
}

// envelope is what a downstream session adds to a request, and the memory for it.
type envelope struct {
	RequestID    []byte   // of a request over HTTP; aliases HeadBuffer or NewID
	NewID        [32]byte // memory of an id that was made here
	Forwarded    []byte   // the value of X-Forwarded-For, if one was extended
	MaxForwards  []byte   // the value of Max-Forwards, if it was lowered
	Path         []byte   // the path, if the listener or the route changed it
	OriginalPath []byte   // the path before that; aliases HeadBuffer
	OriginalHost []byte   // the host, if the route changed it; aliases HeadBuffer
	Edited       []byte   // the values of headers that the route sets
	newCookie    []byte   // Set-Cookie of the session that the request began; empty means none
	timeLeft     []byte   // memory for the headers that say the time left, and the number of the attempt
	previous     uint8    // attempts that grpc-previous-rpc-attempts counts beside the client's own
	previousText [8]byte  // memory for that header
}

// An exchange keeps this much memory for the next request: for X-Forwarded-For, for a
// rewritten path, for a marked tracestate, and for the headers of a route.
const (
	maxEdited     = 512
	maxForwarded  = 256
	maxRewritten  = 512
	maxTraceState = 512
)

// Hold charges the request's memory to the budget; it is called again when that has grown.
func (ex *Exchange) Hold() {
	ex.shard.Recount(&ex.Held, protocol.Held(ex.HeadBuffer)+protocol.Held(ex.BodyBuffer))
}

// LimitTime sets a deadline of the caller's: d after the request arrived. The soonest counts.
func (ex *Exchange) LimitTime(d time.Duration) {
	req, at := &ex.Request, time.Duration(-1) // passed, since 0 means none
	if d > 0 {
		at = cmp.Or(ex.Arrived, ex.shard.Loop.Now()) + min(d, protocol.MaxTimeout)
	}
	if req.Deadline == 0 || at < req.Deadline {
		req.Deadline = at
	}
	req.Timed = true
}

// Limit returns how long the request may take from now on: until its deadline, and at most as
// long as r allows. 0 or less means that its time is up.
func (ex *Exchange) Limit(r *Route, now time.Duration) time.Duration {
	if ex.Request.Deadline == 0 {
		return r.Timeout
	}
	return min(r.Timeout, ex.Request.Deadline-now)
}

// Forbidden reports whether the rules refuse the request, which came in at l and has the route
// r. Without a route the rules of the listener are asked.
func (ex *Exchange) Forbidden(r *Route, l *Listener) bool {
	c := allow.Call{Peer: ex.caller.PeerNames(), Req: &ex.Request, Path: ex.Request.Path}
	if ex.OriginalPath != nil {
		c.Path = ex.OriginalPath
	}
	rules := l.Rules(r)
	return rules.Refuse(&c, ex.caller.RemoteAddr(), ex.shard.Log)
}

// attemptHeader has the number of an attempt that is not the first. An application that passes
// it on prevents further hedges by the sidecars of the services that it calls.
var attemptHeader = []byte(protocol.HeaderAttempt)

// batchHeader tells the application that its own calls for the request are batch, too.
var batchHeader = protocol.Header{Name: []byte(protocol.HeaderPriority), Value: []byte(protocol.PriorityBatch)}

// Outgoing returns the request for an application that speaks HTTP: with the time left, and the
// sidecar's own headers behind the first own. Once it is encoded, the caller cuts them off.
func (a *Attempt) Outgoing() (req *protocol.Request, own int) {
	ex := a.ex
	req = a.Request()
	if req.Timed || ex.service.Config.TimeoutHeader {
		a.SetTimeLeft()
	}
	own = len(req.Headers)
	if req.Attempt > 0 {
		n := len(ex.timeLeft)
		ex.timeLeft = strconv.AppendUint(ex.timeLeft, uint64(req.Attempt), 10)
		req.Headers = append(req.Headers, protocol.Header{Name: attemptHeader, Value: ex.timeLeft[n:len(ex.timeLeft):len(ex.timeLeft)]})
	}
	if req.Batch {
		req.Headers = append(req.Headers, batchHeader)
	}
	return req, own
}

var setCookie = []byte("Set-Cookie")

// findKey makes the key of the request at s. One without a key gets a random one, or begins a session,
// which a copy does not: its response may be for others, too.
func (ex *Exchange) findKey(s *Service) {
	if ex.key = s.keys.Of(&ex.Request, ex.caller.RemoteAddr()); ex.key != 0 {
		return
	}
	random := ex.shard.Rand.Uint64()
	if ex.Request.Codec != protocol.CodecHTTP || ex.copied {
		ex.key = random
		return
	}
	ex.newCookie, ex.key = s.keys.Session(ex.newCookie, random, ex.caller.Listener().Secure)
}

// StreamKey returns the key of the request, which becomes a stream to s; 0 means none.
func (ex *Exchange) StreamKey(s *Service) uint64 {
	if s.keys == nil {
		return 0
	}
	return s.keys.Of(&ex.Request, ex.caller.RemoteAddr())
}

// streamKey returns the key of a stream of c, a random one if it has none.
func (s *Service) streamKey(c Client) uint64 {
	if s.keys == nil {
		return 0
	}
	return cmp.Or(c.Key, s.keys.OfPeer(c.Addr), s.Shard.Rand.Uint64())
}

// Resume passes the request to the filters that have not seen it. If none holds it, its first
// attempt follows. A filter that has held the request calls it.
func (ex *Exchange) Resume() {
	if !ex.admitted { // Park
		ex.admitted = true
		ex.service.shared.pending.Add(1)
	}
	for all := ex.Route.filters; int(ex.filtered) < len(all); {
		f := all[ex.filtered]
		ex.filtered++
		if f.Request(ex) != Continue {
			return // ex may be over
		}
	}
	ex.start(ex.shard.Loop.Now())
}

// Park gives back the place in max_pending of a request that a filter holds. Resume takes one again,
// even if there is none.
func (ex *Exchange) Park() { ex.releasePending() }

// HedgeDelay is when a request of the route is late, as far as is known now.
func (ex *Exchange) HedgeDelay() time.Duration { return ex.Route.hedging.Delay(ex.shard.Loop.Now()) }

// PeerNames are the names that the caller has proved; nil means none.
func (ex *Exchange) PeerNames() *identity.Names { return ex.caller.PeerNames() }

// Refuse gives the caller f. A filter calls it, and must not touch ex afterwards.
func (ex *Exchange) Refuse(f *fault.Failure) {
	ex.decide(int(ex.filtered) - 1)
	ex.fail(f)
}

// Answer gives the caller res, which it owns. A filter calls it, and must not touch ex afterwards.
// The breaker learns nothing of it.
func (ex *Exchange) Answer(res *Response) {
	if ex.service == nil { // EarlyFilter
		ex.Route.Service.count(ex)
	}
	ex.decide(max(0, int(ex.filtered)-1))
	ex.judge(fault.VerdictNone)
	if res.Source == nil && !res.grpc { // it may be the filter's own
		res.readGRPC(&ex.Request)
	}
	ex.answerWith(nil, res)
}

// decide begins the outcome, which n filters see: the first ones. Attempts are cancelled.
func (ex *Exchange) decide(n int) {
	if ex.decided {
		return
	}
	ex.decided, ex.outer = true, uint8(n)
	ex.stopTimers()
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].cancel()
	}
}

// passResponse returns what the filters of the route make of res, or nil if one of them has it.
func (ex *Exchange) passResponse(res *Response) *Response {
	ex.decide(int(ex.filtered))
	ex.judge(fault.VerdictOf(res.outcome()))
	for ex.outer > 0 && res != nil {
		ex.outer--
		if f := ex.Route.outcomes[ex.outer]; f != nil {
			res.Own()
			res = f.Response(ex, res)
		}
	}
	return res
}

// passFailure reports whether a filter of the route answers, or will answer, in place of f.
func (ex *Exchange) passFailure(f *fault.Failure) bool {
	if !ex.decided {
		ex.filtered = uint8(len(ex.Route.filters))
		ex.decide(len(ex.Route.filters))
	}
	ex.judgeFailure(f)
	for ex.outer > 0 {
		ex.outer--
		if o := ex.Route.outcomes[ex.outer]; o != nil && o.Failure(ex, f) != Continue {
			return true
		}
	}
	return false
}

// judgeFailure is judge for a failure. That of a request which a filter held, and which was not sent,
// says nothing of the service.
func (ex *Exchange) judgeFailure(f *fault.Failure) {
	v := fault.VerdictNone
	if ex.launched > 0 {
		v = f.Verdict()
	}
	ex.judge(v)
}

// endFilters ends the filters that have seen the request.
func (ex *Exchange) endFilters() {
	seen := ex.Route.filters[:ex.filtered]
	ex.filtered = 0
	for _, f := range seen {
		f.End(ex)
	}
}

// BeginCopy starts on a request that Pool.Copy has made. It is sent once, by a route whose policy
// has neither retries nor hedges. It passes no filter, has no access line and no span, and its
// failures count for the service alone: they are no responses of this sidecar.
func (ex *Exchange) BeginCopy(r *Route) {
	ex.copied, ex.began = true, ex.shard.Loop.Now()
	ex.pool.addCopy(ex)
	ex.state.become(exchangeOpen)
	if f := ex.admit(r); f != nil {
		ex.fail(f)
		return
	}
	ex.Request.Idempotent, ex.watch = false, hedge.Watch{}
	ex.setDeadline()
	ex.launch(primaryAttempt, nil)
}

// CopyRoute returns a route to s for copies: without retries, hedges and filters.
func (s *Service) CopyRoute() *Route {
	policy := s.Config.Policy
	policy.Retry, policy.Hedge.Mode, policy.Hedge.Class = config.Retry{}, config.HedgeOff, config.ClassNone
	return NewRoute(&route.Plan{Index: -1, Match: &config.Match{}, Route: &config.Route{}, Policy: &policy}, s)
}

// CopyCaller is the part of a Caller that all filters which make copies have.
type CopyCaller struct{ At *Listener }

// Encode implements Caller. Any response will do.
func (CopyCaller) Encode(*Exchange, *Response) *fault.Failure { return nil }

// OverShare implements Caller. Copies go first when memory is short.
func (CopyCaller) OverShare(*Exchange) bool { return true }

// Listener implements Caller.
func (c CopyCaller) Listener() *Listener { return c.At }

// RemoteAddr implements Caller.
func (CopyCaller) RemoteAddr() string { return "" }

// PeerNames implements Caller.
func (CopyCaller) PeerNames() *identity.Names { return nil }

// Finished implements Caller. Nothing waits for a copy that was cancelled.
func (CopyCaller) Finished(*Exchange) {}

// size is the length of the request in bytes.
func (ex *Exchange) size() int { return bufferLen(ex.HeadBuffer) + bufferLen(ex.BodyBuffer) }

func (ex *Exchange) releaseRequest() {
	ex.shard.Buffers.Release(&ex.HeadBuffer)
	ex.shard.Buffers.Release(&ex.BodyBuffer)
	ex.shard.Recount(&ex.Held, 0)
	ex.Request.Reset()
}

package race

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/spare"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

type attemptKind uint8

const (
	primaryAttempt attemptKind = iota
	retryAttempt
	hedgeAttempt
	streamAttempt // of a Stream, also after one that failed
)

// attemptFlags are false when an attempt is launched.
type attemptFlags struct {
	replayed   bool // sent a second time over HTTP: the application may have seen it before
	verdictDue bool // the gRPC call is a stream, whose end gives the verdict on the endpoint
	timedOut   bool // its endpoint was judged for not responding in time
	isError    bool // its response is an error of 4xx or 5xx
	holds      bool // HoldsHead has said that the head of its response is held
	overtaken  bool // it was cancelled because the race was decided; see Overtaken
}

// Attempt is the life of one try of a request at one endpoint, from its launch to its end. What several attempts decide
// together is the job of the Race, which launches and cancels attempts. A Carrier sends the attempt, and ends it with
// Respond, Fail, Finish or Presume. Until then the endpoint counts the attempt as pending, and the attempt keeps its slot
// of the service. Exported methods are for carriers, but for Won and Endpoint, which are for the owner of the race.
type Attempt struct {
	race  *Race
	kind  attemptKind
	index uint8 // position in the race; also the attempt number on the wire
	state attemptState

	attemptFlags

	ep         *lb.Endpoint // nil before one is picked
	sent       time.Duration
	loadBefore spare.Level // of ep, before the attempt

	carrier   Carrier // who has the attempt now; nil if nobody has
	carrierID uint64  // chosen by carrier

	place   service.Place       // its slot of the service, or its place in the queue for one
	waiting fifo.Node[*Attempt] // in the queue of an upstream
}

// Carry gives the attempt to c, under an id that c chooses.
func (a *Attempt) Carry(c Carrier, id uint64) { a.carrier, a.carrierID = c, id }

// Detach takes the attempt from its carrier, which must end it or pass it on.
func (a *Attempt) Detach() { a.carrier = nil }

// ID is the id that the attempt's carrier chose.
func (a *Attempt) ID() uint64 { return a.carrierID }

// Endpoint is where the attempt was sent.
func (a *Attempt) Endpoint() *lb.Endpoint { return a.ep }

// Lingering reports whether nobody waits for the response any more.
func (a *Attempt) Lingering() bool { return a.state == attemptLingering }

// Overtaken reports whether the attempt was cancelled because its caller has another response, or a failure. Else the
// caller has gone, or the time of the attempt is up.
func (a *Attempt) Overtaken() bool { return a.overtaken }

// IsHedge reports whether the attempt is a hedge.
func (a *Attempt) IsHedge() bool { return a.kind == hedgeAttempt }

// Sent is when the attempt was sent.
func (a *Attempt) Sent() time.Duration { return a.sent }

// Codec is the wire format of the request.
func (a *Attempt) Codec() protocol.Codec { return a.race.request.Codec }

// LogsIn reports whether the request may log in the connection that it is sent on. No other request may be
// sent on that.
func (a *Attempt) LogsIn() bool { return a.race.request.Login }

// Client returns who the request came from.
func (a *Attempt) Client() shard.Client { return a.race.owner.Client() }

// ToHead reports whether the request is a HEAD. Its response has no body.
func (a *Attempt) ToHead() bool { return string(a.race.request.Method) == "HEAD" }

// NewResponse returns an empty response, to end the attempt with.
func (a *Attempt) NewResponse() *Response { return a.race.responses.New() }

// TimeLeft returns how long the caller still waits, as far as this sidecar knows.
func (a *Attempt) TimeLeft() time.Duration { return a.race.request.Deadline - a.race.shard.Loop.Now() }

// SetTimeLeft makes the headers of the request say the time left, in memory of the race.
func (a *Attempt) SetTimeLeft() {
	req, m := a.race.request, &a.race.marks
	req.Headers, m.timeLeft = protocol.SetTimeLeft(req.Headers, a.TimeLeft(), m.timeLeft)
}

// Timeout is the route's timeout of a request.
func (a *Attempt) Timeout() time.Duration { return a.race.Policy.Timeout }

// Repeatable reports whether the request may be sent again, if the budget allows, after its connection was
// lost.
func (a *Attempt) Repeatable() bool {
	on := &a.race.Policy.retryOn
	return a.race.request.Idempotent && (on.connect || on.reset)
}

// PayReplay reports whether the attempt, whose connection was stale, may be sent once more. The service may have seen
// the request, so that takes the token of a retry after a reset, and Replay must follow.
func (a *Attempt) PayReplay() bool {
	return !a.replayed && a.state == attemptSent && a.Repeatable() && a.race.Service.Budget.PayReplay()
}

// Replay notes that the attempt is sent once more. The application may have seen the
// request: the connection may have been lost because of it.
func (a *Attempt) Replay() {
	a.replayed, a.race.MaybeProcessed = true, true
	a.race.shard.Stats.Replays++
}

// Granted implements service.Waiter.
func (a *Attempt) Granted(waited time.Duration) {
	r := a.race
	r.queued += waited
	if r.awaited {
		r.awaited = false
		r.owner.Started()
	}
	a.send(nil)
}

// withdraw takes the attempt out of the queue for slots, and ends its wait for answers.
func (a *Attempt) withdraw() {
	r := a.race
	if a.state == attemptQueued && r.Tied {
		r.Service.Stats.TiedWithdrawn++
	}
	r.queued += r.Service.Admission.Withdraw(&a.place)
	r.asking.withdraw(a)
}

// send gives the attempt to ep's upstream; if ep is nil, the policy picks the endpoint.
func (a *Attempt) send(ep *lb.Endpoint) {
	r, now := a.race, a.race.shard.Loop.Now()
	if ep == nil {
		if r.Service.Probes.On && r.asking.send(a) {
			return
		}
		q := r.Service.Query(r.Key, a.others())
		q.Pin = r.Pin
		ep = r.Service.Pick(q, r.avoid[:])
	}
	if ep == nil {
		a.Fail(fault.NoEndpoint)
		return
	}
	a.ep, a.sent = ep, now
	a.state.become(attemptSent)
	r.hedging.onSent(a, now)
	r.tried[a.index] = ep
	if a.kind == streamAttempt {
		a.open()
		return
	}
	a.loadBefore = ep.Start(now)
	r.tries.onSent()
	if r.Batch {
		ep.CountBatch(1)
	}
	to := ep.Ext.(*service.Endpoint)
	to.CountSent(r.Bytes, a.kind == retryAttempt, a.kind == hedgeAttempt)
	r.Traced.begin(a)
	upstreamOf(to).Send(a)
}

// others returns the endpoints of the other attempts. nil stands for an attempt without an endpoint: a primary that waits
// for answers may get its endpoint after a hedge has left.
func (a *Attempt) others() []*lb.Endpoint {
	r := a.race
	if last := r.Launched - 1; int(a.index) == last {
		return r.tried[:last]
	}
	return r.tried[:r.Launched]
}

// wireAttempt is the attempt number for the next hop, which includes the attempts that led to
// this race. It leaves room below 255, since older sidecars add theirs in eight bits.
func (a *Attempt) wireAttempt() uint8 {
	return uint8(min(int(a.race.CallerAttempt)+int(a.index), math.MaxUint8-MaxAttempts))
}

// Won notes that the caller got the response of the attempt, which counts as status.
func (a *Attempt) Won(status int) {
	if a.kind == hedgeAttempt && status < 500 {
		a.race.Policy.HedgeRoute.Won()
	}
}

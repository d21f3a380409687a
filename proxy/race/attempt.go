package race

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/service"
)

type attemptKind uint8

const (
	primaryAttempt attemptKind = iota
	retryAttempt
	hedgeAttempt
	streamAttempt // of a Stream, also after one that failed
)

// Attempt is one try of a request at one endpoint, from its launch to its end. What several attempts decide together
// is the job of the Race, which launches and cancels attempts. A Carrier sends the attempt, and ends it with Respond,
// RespondLocally, Fail, Finish or Presume. Until then the endpoint counts the attempt as pending, and the attempt keeps
// its slot of the service. The request, as the carrier sends it, is Outgoing.
type Attempt struct {
	race  *Race
	kind  attemptKind
	index uint8 // position in the race; also the attempt number on the wire
	state attemptState
	visit visit // of its endpoint

	replayed  bool // sent a second time over HTTP: the application may have seen it before
	holds     bool // HoldsHead has said that the head of its response is held
	overtaken bool // it was cancelled because the race was decided; see Overtaken
	seen      bool // its carrier has said so by NoteSeen

	carrier   Carrier // who has the attempt now; nil if nobody has
	carrierID uint64  // chosen by carrier

	place   service.Place       // its slot of the service, or its place in the queue for one
	waiting fifo.Node[*Attempt] // in the queue of an upstream
}

// reset prepares for a launch as the attempt of its race with this index. There is no visit before send:
// Race.Reset has cleared the endpoint.
func (a *Attempt) reset(kind attemptKind, index int) {
	a.kind, a.index = kind, uint8(index)
	a.replayed, a.holds, a.overtaken, a.seen = false, false, false, false
}

// The following are for carriers. So are Outgoing, HoldsHead, Interim and Started, and those of end.go that end the
// attempt.

// Carry gives the attempt to c, under an id that c chooses.
func (a *Attempt) Carry(c Carrier, id uint64) { a.carrier, a.carrierID = c, id }

// Detach takes the attempt from its carrier, which must end it or pass it on.
func (a *Attempt) Detach() { a.carrier = nil }

// ID is the id that the attempt's carrier chose.
func (a *Attempt) ID() uint64 { return a.carrierID }

// Sent is when the attempt was sent.
func (a *Attempt) Sent() time.Duration { return a.visit.sent }

// IsHedge reports whether the attempt is a hedge.
func (a *Attempt) IsHedge() bool { return a.kind == hedgeAttempt }

// Lingering reports whether nobody waits for the response any more.
func (a *Attempt) Lingering() bool { return a.state == attemptLingering }

// Overtaken reports whether the attempt was cancelled because its caller has another response, or a failure. Else the
// caller has gone, or the time of the attempt is up.
func (a *Attempt) Overtaken() bool { return a.overtaken }

// NoteSeen notes that the application has the attempt, which was cancelled.
func (a *Attempt) NoteSeen() { a.seen = true }

// Seen reports whether NoteSeen was called.
func (a *Attempt) Seen() bool { return a.seen }

// PayReplay reports whether the attempt, whose connection was stale, may be sent once more. The service may have seen
// the request, so that takes the token of a retry after a reset, and Replay must follow.
func (a *Attempt) PayReplay() bool {
	return !a.replayed && a.state == attemptSent && a.Outgoing().Repeatable() && a.race.Service.Budget.PayReplay()
}

// Replay notes that the attempt is sent once more. The application may have seen the
// request: the connection may have been lost because of it.
func (a *Attempt) Replay() {
	a.replayed, a.race.MaybeProcessed = true, true
	a.race.shard.Stats.Replays++
}

// NewResponse returns an empty response, to end the attempt with.
func (a *Attempt) NewResponse() *Response { return a.race.responses.New() }

// Endpoint is where the attempt was sent. It is for the owner of the race.
func (a *Attempt) Endpoint() *lb.Endpoint { return a.visit.ep }

// The following are for the race.

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

// send gives the attempt to ep's upstream; if ep is nil, asking picks the endpoint.
func (a *Attempt) send(ep *lb.Endpoint) {
	r, now := a.race, a.race.shard.Loop.Now()
	if ep == nil {
		var waits bool
		if ep, waits = r.asking.pick(a); waits {
			return
		}
	}
	if ep == nil {
		a.Fail(fault.NoEndpoint)
		return
	}
	v := &a.visit
	*v = visit{ep: ep, sent: now, stream: a.kind == streamAttempt, batch: r.Batch}
	a.state.become(attemptSent)
	r.learning.onSent(a, now)
	r.hedging.onSent(now)
	r.tried[a.index] = ep
	if v.stream {
		r.stream.open(a)
		return
	}
	if v.load = ep.Start(now); v.batch {
		ep.CountBatch(1)
	}
	r.tries.onSent()
	to := v.endpoint()
	to.CountSent(r.Bytes, a.kind == retryAttempt, a.kind == hedgeAttempt)
	r.Traced.begin(a)
	upstreamOf(to).Send(a)
}

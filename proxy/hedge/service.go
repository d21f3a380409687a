package hedge

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/budget"
	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
)

// minTotal is the burst of hedges, and the number in flight, that a service may
// have over all loops however small its traffic. TestConstants shows what happens at twice and at half.
var minTotal = 10.0

// Service is the hedging state that the routes of one service share on one loop.
type Service struct {
	Stalls   periodic.Stalls
	Together Together

	tokens   budget.Tokens
	inFlight int
	minLimit float64 // the limit of inFlight is never below this, nor below 1
}

// NewService returns the state of a service on one of the given number of loops.
func NewService(loops int) Service {
	return Service{tokens: budget.New(minBurst(loops)), minLimit: max(1, minBurst(loops))}
}

// minBurst is the part of minTotal that one loop has.
func minBurst(loops int) float64 { return minTotal / float64(max(1, loops)) }

// Question describes a request whose hedge timer has fired. The zero value closes every gate that a
// Question can close on its own.
type Question struct {
	Class      class.ID // of the request
	Idempotent bool     // may reach two replicas
	Paid       bool     // the result of Delays.DrawPaid

	// Cascade reports whether the request is itself a hedge or a retry of its
	// sender. Hedging it again would multiply the load along a chain of services.
	Cascade bool

	// Endpoints is the number of endpoints of the service. Active and Silent are the results of
	// lb.SilentCount, after SilentAfter.
	Endpoints, Active, Silent int

	// Untried counts the endpoints that may take the hedge: not tried by this request, not
	// stalled, with spare capacity. The caller may stop counting at one.
	Untried int

	// Stuck reports whether each endpoint that has the request also has another of this loop,
	// and has sent no response for SilentAfter. The hedge of a stuck request passes the gate
	// useless, and may take a token that other hedges must leave (stuckReserve).
	Stuck bool

	Left time.Duration // until the request's deadline
}

// SilentTogether reports whether so many endpoints are silent that a hedge would wait like the primary:
// more than half of the active endpoints, and at least three of all, or both of two. Fewer endpoints may
// have stopped together by chance. Idle endpoints may well respond, and a hedge may go to them.
func SilentTogether(endpoints, active, silent int) bool {
	return endpoints > 1 && silent >= min(endpoints, 3) && 2*silent > active
}

// Primary counts a first attempt, which earns its route's budget. The caller calls
// it in every mode, because paid retries take the same tokens.
func (s *Service) Primary(now time.Duration, r *Route) {
	r.Counts.Primaries++
	s.tokens.Primary(now, r.Policy.Budget)
}

// Stream counts a stream, which earns its service's budget for paid retries. No hedge can help it.
func (s *Service) Stream(now time.Duration, earns float64) { s.tokens.Primary(now, earns) }

// Decide asks the gates whether a hedge may be sent now, and counts the result. Open means
// that it has taken a token and a slot: the caller sends the hedge, and calls Done once.
// Otherwise nothing was taken, and the result is the first closed gate, in this order:
//
//	not_idempotent, cascade    facts of the request
//	correlated, periodic       all endpoints stall, or will soon
//	no_endpoint                no endpoint to send it to
//	deadline                   too late to be useful
//	useless                    hedges save too little for each late request to have one, and this
//	                           request is not stuck
//	budget, concurrency        too expensive
//
// The gates of cost come last, so that their counters mean "would have been sent, had there
// been more to spend". correlated comes before no_endpoint: when all other endpoints are
// silent, it is the reason. The caller asks only with mode On and fewer than Max hedges sent,
// and again after Delays.Again if the result was Open or Transient.
func (s *Service) Decide(now time.Duration, r *Route, q *Question) Gate {
	gate := s.gate(now, r, q)
	r.Counts.Gates[gate]++
	if gate == Open {
		s.tokens.Take(now)
		s.inFlight++
		r.Counts.Hedges++
		r.Savings.worth.CountHedge()
	}
	return gate
}

func (s *Service) gate(now time.Duration, r *Route, q *Question) Gate {
	_, median, _ := r.Latencies.estimateOf(now, q.Class)
	switch {
	case !q.Idempotent:
		return NotIdempotent
	case q.Cascade:
		return Cascade
	case SilentTogether(q.Endpoints, q.Active, q.Silent):
		return Correlated
	case s.Stalls.Expects(now):
		return Periodic
	case q.Untried <= 0:
		return NoEndpoint
	case q.Left <= 0 || q.Left < median:
		return Deadline
	case !q.Stuck && !r.Savings.worth.Allows():
		r.Savings.worth.Skip()
		return Useless
	case r.Policy.Budget <= 0 || !q.Paid && !q.Stuck || !s.tokens.Allows(now, q.Stuck):
		return Budget
	case s.inFlight >= s.limit(r.Latencies.estimate(now).tail, s.tokens.PerSecond(now)):
		return Concurrency
	}
	return Open
}

// limit returns how many hedges may be in flight when responses take latency and the
// budget earns perSecond tokens a second. By Little's law it is latency × rate × budget:
// the number in flight if the whole budget is spent and each hedge takes as long as a
// slow response. More means that the hedges are themselves stuck.
func (s *Service) limit(latency time.Duration, perSecond float64) int {
	return int(math.Ceil(max(s.minLimit, latency.Seconds()*perSecond)))
}

// Done gives back the slot of a hedge once its endpoint has responded or confirmed the cancel,
// or the deadline has passed. Until then a cancelled hedge at a frozen endpoint is in flight.
func (s *Service) Done() {
	if s.inFlight == 0 {
		panic("hedge: Done without a hedge in flight")
	}
	s.inFlight--
}

// Refund gives back the token of a hedge that no application has begun: without a
// connection, or refused. Done still gives back a hedge's slot.
func (s *Service) Refund(now time.Duration) { s.tokens.Refund(now) }

// Retry takes the token of a retry that is not free (after a reset, a refusal, a
// 5xx). It reports whether there was one; without it the retry must not be sent.
func (s *Service) Retry(now time.Duration) bool { return s.tokens.Take(now) }

// RetryAhead is Retry after a lost connection. All requests on it need a retry at once, so as many
// tokens may be owed as requests are in flight on this loop. Until others have earned
// them, other retries and hedges wait.
func (s *Service) RetryAhead(now time.Duration, inFlight int) bool {
	return s.tokens.TakeAhead(now, inFlight)
}

// InFlight returns the number of hedges in flight.
func (s *Service) InFlight() int { return s.inFlight }

// Tokens returns the number of hedges and paid retries that may be sent at once, or what is owed
// as a number below 0.
func (s *Service) Tokens(now time.Duration) float64 { return s.tokens.Have(now) }

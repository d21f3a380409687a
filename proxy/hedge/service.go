package hedge

import (
	"math"
	"time"
)

// minOverall is the burst of hedges, and the hedges in flight, that a service is
// allowed over all loops however small its traffic.
const minOverall = 10

// NoDeadline is the Left of a request without a deadline.
const NoDeadline = time.Duration(math.MaxInt64)

// Service is what hedging shares between the routes of one service on one loop:
// the token bucket and the count of hedges in flight.
type Service struct {
	tokens   Tokens
	inFlight InFlight
}

// NewService returns the state of a service on one of loops loops.
func NewService(loops int) Service {
	part := minOverall / float64(max(1, loops))
	return Service{tokens: NewTokens(part), inFlight: NewInFlight(part)}
}

// Question is what the gates need to know about one request at the moment its
// hedge timer fires. The zero value is stopped at every gate it could be.
type Question struct {
	// Idempotent: the request may reach two replicas.
	Idempotent bool

	// Cascade: the request is itself a hedge or retry of whoever sent it here.
	// Hedging it again would multiply load down a chain of calls.
	Cascade bool

	// Endpoints is the number of them. Heard is how many have had something of
	// this loop to answer within the last SilentAfter, and Silent how many of
	// those have it still and have answered nothing for as long.
	Endpoints, Heard, Silent int

	// Untried is the number of endpoints that may take the hedge: not tried by
	// this request, not busy, not stalled. That there is one is enough.
	Untried int

	// Stuck: every endpoint that has the request has another one of this loop too, and
	// has answered nothing for Estimator.SilentAfter. Its hedge is not stopped by those
	// of others that did not win, and may take a token that they have to leave.
	Stuck bool

	// Left is the time until the request's deadline, NoDeadline without one.
	Left time.Duration
}

// correlated tells whether so much is silent that a hedge would wait with the
// rest: more than half of the endpoints heard of, and three at least or both of
// two. Fewer may have stopped at one time by chance, and an idle one may well
// answer: that is what hedging is for.
func (q *Question) correlated() bool {
	return q.Endpoints > 1 && q.Silent >= min(q.Endpoints, 3) && 2*q.Silent > q.Heard
}

// Primary counts a first attempt, which earns its route's budget. It is called
// whatever the mode, for paid retries draw on the same tokens.
func (s *Service) Primary(now time.Duration, r *Route) {
	r.Counts.Primaries++
	r.wins.primary(r.Policy.Budget)
	if r.shadow != nil {
		r.shadow.primary(now, r.Policy.Budget)
	}
	s.tokens.Primary(now, r.Policy.Budget)
}

// Decide asks all gates whether a hedge is to be sent now, and counts the answer.
// When that is Open it has taken a token and a slot: the caller sends the hedge,
// and calls Done once. Otherwise nothing was taken, and the answer is the first
// gate that was closed, in this order:
//
//	not_idempotent, cascade    facts of the request
//	correlated, no_endpoint    nobody to send it to
//	deadline                   too late to be of use
//	useless                    hedges do not help, and this request is not stuck
//	budget, concurrency        too dear
//
// The dear ones come last so that their counters mean "would have been sent, had
// there been more to spend"; correlated comes before no_endpoint, for when all
// others are silent it is what says why. The caller asks only with mode On and
// fewer than Max hedges sent; it asks again Route.Again later while that holds
// and the answer was Open or Transient.
func (s *Service) Decide(now time.Duration, r *Route, q *Question) Gate {
	gate := s.gate(now, r, q)
	r.Counts.Gates[gate]++
	if gate == Open {
		s.tokens.Take(now)
		s.inFlight.Add()
		r.Counts.Hedges++
		r.wins.hedge()
	}
	return gate
}

func (s *Service) gate(now time.Duration, r *Route, q *Question) Gate {
	est, budget := r.Estimator.estimate(now, r.Policy.Quantile), r.Policy.Budget
	switch {
	case !q.Idempotent:
		return NotIdempotent
	case q.Cascade:
		return Cascade
	case q.correlated():
		return Correlated
	case q.Untried <= 0:
		return NoEndpoint
	case q.Left <= 0 || q.Left < est.median:
		return Deadline
	case !q.Stuck && !r.wins.pass():
		return Useless
	case budget <= 0 || !s.tokens.spare(now, q.Stuck):
		return Budget
	case s.inFlight.Count() >= s.inFlight.Limit(est.tail, s.tokens.in.perSecond(now)):
		return Concurrency
	}
	return Open
}

// Done gives the slot of a hedge back: once its endpoint has answered, said that
// it dropped it, or its deadline has passed. Not at the cancel: a hedge that is
// stuck at a frozen endpoint is one in flight.
func (s *Service) Done() { s.inFlight.Done() }

// Refund gives the token of a hedge or paid retry back that reached nobody: no
// connection, or refused by the other sidecar before the app saw it. A hedge's
// slot is still given back by Done.
func (s *Service) Refund(now time.Duration) { s.tokens.Refund(now) }

// Retry takes the token of a retry that is not free (after a reset, a refusal, a
// 5xx); false forbids it.
func (s *Service) Retry(now time.Duration) bool { return s.tokens.Take(now) }

// InFlight is the number of hedges that are out.
func (s *Service) InFlight() int { return s.inFlight.Count() }

// Tokens is the number of hedges and paid retries that could be sent at once.
func (s *Service) Tokens(now time.Duration) float64 { return s.tokens.Have(now) }

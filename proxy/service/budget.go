package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
)

// Budget pays for the attempts of a service on a loop that follow others, with tokens of its hedging, and bounds those
// that cost none.
type Budget struct {
	service    *Service
	moves      moves
	nextReplay time.Duration // when a replay costs nothing again
}

// moves bounds the requests that go elsewhere after a refusal: moveShare of the requests since some
// moment within the last moveEvery, and moveLeast. Where refusals are many, the gaps of package lb
// leave nowhere to go before that. So the bound holds only if endpoints take single requests and
// refuse all others. With twice the share such a fleet may get twice its load; with half of it, the first
// burst at two endpoints, of which one refuses, has failures.
type moves struct {
	since    time.Duration
	requests uint64 // of the service, before those that were in flight then
	moved    uint64
}

const (
	moveShare = 0.5
	moveLeast = 10
	moveEvery = time.Second
)

func (m *moves) take(s *Service) bool {
	if now := s.Shard.Loop.Now(); now-m.since >= moveEvery {
		*m = moves{since: now, requests: s.Stats.Requests - min(s.Stats.Requests, uint64(s.inFlight()))}
	}
	if float64(m.moved) >= moveLeast+moveShare*float64(s.Stats.Requests-m.requests) {
		return false
	}
	m.moved++
	return true
}

// TakeMove reports whether a refused request may go free of charge to an endpoint that has room, as far as is
// known, and counts it. tried are the endpoints that the request has been at.
func (b *Budget) TakeMove(key uint64, tried []*lb.Endpoint) bool {
	s := b.service
	return s.Set.HasRoom(s.Query(key, tried)) && b.moves.take(s)
}

// replayEvery is how often a service's request on a loop is replayed free of charge. So a server that
// closes idle connections just when they are used again fails none of few requests, although these
// earn no token.
const replayEvery = time.Second

// PayReplay takes the token of a replay, which is sent again since a pooled connection was stale, and
// reports whether there was one.
func (b *Budget) PayReplay() bool {
	if now := b.service.Shard.Loop.Now(); now >= b.nextReplay {
		b.nextReplay = now + replayEvery
		return true
	}
	return b.Pay(true)
}

// Pay takes the token of a retry, and reports whether there was one. After a reset it may be owed.
func (b *Budget) Pay(reset bool) bool {
	s := b.service
	now := s.Shard.Loop.Now()
	switch {
	case s.Hedging.Retry(now):
	case reset && s.Hedging.RetryAhead(now, s.inFlight()+1):
		s.Stats.RetriesAhead++
	default:
		s.Stats.RetriesOverBudget++
		return false
	}
	s.Stats.RetriesPaid++
	return true
}

package service

import (
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestMoves: within a second ten refused requests may go elsewhere, and half of the requests, those included that were in
// flight at its begin.
func TestMoves(t *testing.T) {
	s, l := newTestService(t)
	added, _ := s.Set.Update([]lb.Target{{Addr: "a"}})
	take := func(want int) {
		t.Helper()
		n := 0
		for s.Budget.TakeMove(0, nil) {
			n++
		}
		if n != want {
			t.Errorf("%d requests may move, want %d", n, want)
		}
	}
	s.Stats.Requests = 100
	take(moveLeast)
	s.Stats.Requests += 4
	take(2)
	s.Stats.Requests++
	take(1) // begun halves count
	s.Stats.Requests++
	take(0)
	l.now += moveEvery - 1
	take(0)
	for range 6 {
		added[0].Start(l.Now())
	}
	l.now++
	take(moveLeast + 3)
	s.Stats.Requests = 2 // fewer than are in flight
	l.now += moveEvery
	take(moveLeast + 1)
	l.now += moveEvery
	if s.Budget.TakeMove(0, added) {
		t.Error("a request moves to where it was")
	}
}

// TestReplays: each second a replay costs nothing, and others a token. A token may be owed for each request in flight.
func TestReplays(t *testing.T) {
	s, l := newTestService(t)
	if !s.Budget.PayReplay() || s.Stats.RetriesPaid != 0 {
		t.Errorf("the first replay costs %d tokens", s.Stats.RetriesPaid)
	}
	for s.Hedging.Retry(l.Now()) { // no token is left
	}
	l.now += replayEvery - 1
	if s.Budget.Pay(false) || s.Stats.RetriesOverBudget != 1 {
		t.Error("a retry that follows no reset owes a token")
	}
	if !s.Budget.PayReplay() || s.Stats.RetriesPaid != 1 || s.Stats.RetriesAhead != 1 {
		t.Errorf("%d tokens paid, %d of them owed, want 1 and 1", s.Stats.RetriesPaid, s.Stats.RetriesAhead)
	}
	if s.Budget.PayReplay() || s.Stats.RetriesOverBudget != 2 {
		t.Error("more tokens are owed than requests are in flight")
	}
	l.now++
	if !s.Budget.PayReplay() || s.Stats.RetriesPaid != 1 {
		t.Error("a replay a second later costs a token")
	}
}

// newTestService returns a service on one loop, without endpoints.
func newTestService(t *testing.T) (*Service, *stillLoop) {
	t.Helper()
	l := &stillLoop{}
	return servicesOn(config.Default(), config.DefaultService("s"), []*stillLoop{l})[0], l
}

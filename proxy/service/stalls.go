package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
	"github.com/remora-proxy/remora/proxy/loop"
)

// While requests are in flight, a service looks each lookEvery whether its endpoints stall together,
// and in a stall each lookStalled, to learn its length. A silence shorter than that is none.
const (
	lookEvery   = 100 * time.Millisecond
	lookStalled = 10 * time.Millisecond

	// choosePerLook bounds how long a look takes: a choice takes up to 50 µs.
	choosePerLook = 4
)

// inFlight is the number of attempts of this loop at the endpoints.
func (s *Service) inFlight() (n int) {
	for i := range s.Set.Len() {
		n += s.Set.At(i).Pending()
	}
	return n
}

func (s *Service) refreshStall(now time.Duration) {
	var st lb.Stall
	for _, r := range s.routes {
		st.After = max(st.After, r.Estimator.StallAfter(now, &r.Policy))
		st.Probe = max(st.Probe, r.Estimator.Delay(now, &r.Policy))
	}
	s.Set.Stall = st
	if !s.look.Armed() && !s.Alone() {
		s.lookAfter(now, lookEvery)
	}
}

// choose makes the choices of best delays anew that are outdated, among a few routes at a time.
func (s *Service) choose(now time.Duration) {
	for range min(choosePerLook, len(s.routes)) {
		s.chosen = (s.chosen + 1) % len(s.routes)
		s.routes[s.chosen].Choose(now)
	}
}

// onLook looks whether the endpoints stall together, and chooses delays. If the loop itself is late, it first
// handles the events that came meanwhile, see loop.Slack.
func (s *Service) onLook() {
	now := s.Shard.Loop.Now()
	if now > s.lookDue+loop.Slack {
		s.lookDue = loop.Whenever
		s.Shard.Loop.After(0, &s.look)
		return
	}
	s.choose(now)
	after := max(s.Set.Stall.After, lookStalled)
	active, silent := s.Set.CountSilent(now, after, &s.silent)
	stalls, together := &s.Hedging.Stalls, hedge.SilentTogether(s.Set.Len(), active, silent)
	switch stalls.Look(now, together, s.silent.Since, after) {
	case periodic.Found:
		if s.shared.periodic.Add(1) == 1 {
			p, last := s.period(now)
			s.log.Warn("periodic stalls: no hedge is sent in them", "found", p.Describe(s.Config.Name, last))
		}
	case periodic.Over:
		if s.shared.periodic.Add(-1) == 0 {
			s.log.Warn("periodic stalls are over", "service", s.Config.Name)
		}
	}
	switch {
	case stalls.Open():
		s.lookAfter(now, lookStalled)
	case s.inFlight() > 0:
		s.lookAfter(now, lookEvery)
	}
}

func (s *Service) lookAfter(now, d time.Duration) {
	s.lookDue = now + d
	s.Shard.Loop.After(d, &s.look)
}

// period returns the period of stalls, and the time of day of its latest beat, zero without a clock.
func (s *Service) period(now time.Duration) (p periodic.Period, last time.Time) {
	p = s.Hedging.Stalls.Period(now)
	if wall := s.Shard.Process.Now(); p.Every > 0 && !wall.IsZero() {
		last = wall.Add(p.Last - now)
	}
	return p, last
}

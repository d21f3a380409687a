package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
	"github.com/remora-proxy/remora/proxy/loop"
)

// stalls finds out whether the endpoints of a service are silent together, on one loop, and keeps what routes derive
// from the time up to date: thresholds of stalls, and delays of hedges.
type stalls struct {
	service *Service
	next    time.Duration // when the threshold is computed again
	timer   loop.Timer    // armed while requests are in flight
	due     loop.Due
	looked  lb.SilentCount // when timer fired
	heard   lb.SilentCount // when a silence of an endpoint was noted
	chosen  int            // index of the route that was last asked to choose its delay
}

const (
	// thresholdEvery is how often the threshold of a stall is computed.
	thresholdEvery = 100 * time.Millisecond

	// While requests are in flight, stalls looks each lookEvery whether the endpoints are silent together, and in a
	// stall each lookStalled, to learn its length. A silence shorter than lookStalled is none.
	lookEvery   = 100 * time.Millisecond
	lookStalled = 10 * time.Millisecond

	// choosePerLook bounds how long a look takes: a choice takes up to 50 µs.
	choosePerLook = 4
)

func (st *stalls) init(s *Service) { st.service, st.timer.Fire = s, st.look }

// keepFresh computes the threshold anew if it is outdated.
func (st *stalls) keepFresh(now time.Duration) {
	if now >= st.next {
		st.refresh(now)
	}
}

// outdate makes the threshold outdated: the configuration that it is made of has changed.
func (st *stalls) outdate() { st.next = 0 }

// refresh computes the threshold, and arms the timer unless no endpoint has another beside it.
func (st *stalls) refresh(now time.Duration) {
	s, of := st.service, lb.Stall{}
	st.next = now + thresholdEvery
	for _, r := range s.Routes {
		of.After = max(of.After, r.Latencies.Primaries.StallAfter(now, &r.Policy))
		of.Probe = max(of.Probe, r.Latencies.Primaries.Delay(now, &r.Policy))
	}
	s.Set.Stall = of
	s.Probes.refresh(now)
	if !st.timer.Armed() && !s.Alone() {
		st.arm(now, lookEvery)
	}
}

// look looks whether the endpoints are silent together, and chooses delays. If the loop itself is late, it first
// handles the events that came meanwhile, see loop.Due.
func (st *stalls) look() {
	s, now := st.service, st.service.Shard.Loop.Now()
	if st.due.PutOff(now) {
		s.Shard.Loop.After(0, &st.timer)
		return
	}
	st.chooseDelays(now)
	after := max(s.Set.Stall.After, lookStalled)
	active, silent := st.looked.Count(&s.Set, now, after)
	seen, together := &s.Hedging.Stalls, hedge.SilentTogether(s.Set.Len(), active, silent)
	switch seen.Look(now, together, st.looked.Since, after) {
	case periodic.Found:
		if s.Shared.periodic.Add(1) == 1 {
			p, last := s.period(now)
			s.log.Warn("periodic stalls: no hedge is sent in them", "found", p.Describe(s.Config.Name, last))
		}
	case periodic.Over:
		if s.Shared.periodic.Add(-1) == 0 {
			s.log.Warn("periodic stalls are over", "service", s.Config.Name)
		}
	}
	switch {
	case seen.Open():
		st.arm(now, lookStalled)
	case s.inFlight() > 0:
		st.arm(now, lookEvery)
	}
}

// NoteSilence notes whether the endpoints have been silent together until now, as far as ep shows it: either ep responds now,
// and its attempt has not ended yet, or the time for that is up.
func (s *Service) NoteSilence(now time.Duration, ep *lb.Endpoint) {
	if after := s.Set.Stall.After; after > 0 && ep.Silence(now) >= after {
		s.stalls.hear(now, after)
	}
}

// HeardLoad takes the load that ep reports now. The report may come before the response that ends a silence.
func (s *Service) HeardLoad(now time.Duration, ep *lb.Endpoint, l lb.Load) {
	s.NoteSilence(now, ep)
	ep.Report(now, l, ep.OfProcess())
}

func (st *stalls) hear(now, after time.Duration) {
	s := st.service
	active, silent := st.heard.Count(&s.Set, now, after)
	if hedge.SilentTogether(s.Set.Len(), active, silent) {
		s.Hedging.Together.Note(st.heard.All, now)
	}
}

// chooseDelays makes the choices of best delays anew that are outdated, among a few routes at a time.
func (st *stalls) chooseDelays(now time.Duration) {
	routes := st.service.Routes
	for range min(choosePerLook, len(routes)) {
		st.chosen = (st.chosen + 1) % len(routes)
		routes[st.chosen].Delays.Choose(now)
	}
}

func (st *stalls) arm(now, after time.Duration) {
	st.due = loop.Due(now + after)
	st.service.Shard.Loop.After(after, &st.timer)
}

// inFlight is the number of attempts of this loop at the endpoints.
func (s *Service) inFlight() (n int) {
	for i := range s.Set.Len() {
		n += s.Set.At(i).Pending()
	}
	return n
}

// period returns the period of stalls, and the time of day of its latest beat, zero without a clock.
func (s *Service) period(now time.Duration) (p periodic.Period, last time.Time) {
	p = s.Hedging.Stalls.Period(now)
	if wall := s.Shard.Process.Now(); p.Every > 0 && !wall.IsZero() {
		last = wall.Add(p.Last - now)
	}
	return p, last
}

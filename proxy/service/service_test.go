package service

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// withEndpoints gives the service an endpoint for each of the connections; nil stands for none yet.
func withEndpoints(s *Service, all ...*noConnections) {
	next := 0
	s.connectors = Protocols{"": {Connector: func(*Service, *Endpoint) Connections {
		next++
		return all[next-1]
	}}}
	var targets []lb.Target
	for i := range all {
		targets = append(targets, lb.Target{Addr: string(rune('a' + i))})
	}
	s.Set.Update(targets)
	for i, c := range all {
		s.adopt(s.Set.At(i), "http")
		if own := s.Set.At(i).Ext.(*Endpoint); c != nil {
			own.Upstream()
		} else {
			next++
		}
	}
}

// holder is a shard.Holder by name.
type holder string

func (holder) ShedLargest() bool { return false }
func (holder) CloseNow()         {}

// TestLargest: the connection that holds the most for each of its requests, if that is more than a rank.
func TestLargest(t *testing.T) {
	s, _ := newTestService(t)
	withEndpoints(s, &noConnections{held: 90, each: 9, holder: holder("a")}, nil, &noConnections{held: 20, each: 20, holder: holder("c")},
		&noConnections{held: 60, each: 60}, &noConnections{held: 20, each: 20, holder: holder("e")})
	for _, c := range []struct {
		rank, held, each int
		holder           shard.Holder
	}{{0, 20, 20, holder("c")}, {19, 20, 20, holder("c")}, {20, 0, 20, nil}} {
		if held, each, h := s.Largest(c.rank); held != c.held || each != c.each || h != c.holder {
			t.Errorf("above %d: %v holds %d, %d each", c.rank, h, held, each)
		}
	}
}

// TestRetire: the connections to all endpoints are retired.
func TestRetire(t *testing.T) {
	s, _ := newTestService(t)
	a, c := &noConnections{}, &noConnections{}
	withEndpoints(s, a, nil, c)
	s.Retire()
	if a.retired != 1 || c.retired != 1 || !s.Set.At(1).Ext.(*Endpoint).retired {
		t.Errorf("retired %d and %d times", a.retired, c.retired)
	}
}

// TestPickAgain: a retry goes to an endpoint that was not tried, else to another than where the latest attempt failed, else there.
func TestPickAgain(t *testing.T) {
	s, _ := newTestService(t)
	s.Set.Update([]lb.Target{{Addr: "a"}, {Addr: "b"}})
	a, b := s.Set.At(0), s.Set.At(1)
	for _, c := range []struct{ tried, failed []*lb.Endpoint }{
		{[]*lb.Endpoint{a}, []*lb.Endpoint{b}}, {[]*lb.Endpoint{a, b}, []*lb.Endpoint{a}},
	} {
		if !s.HasOther(c.tried[:1]) || s.HasOther([]*lb.Endpoint{b, a}) {
			t.Errorf("%d tried: another is there: %t", len(c.tried), s.HasOther(c.tried[:1]))
		}
		if got := s.Pick(s.Query(0, c.tried), c.failed); got != b {
			t.Errorf("%d tried: picked %s", len(c.tried), got.Addr)
		}
	}
	s.Set.Update([]lb.Target{{Addr: "b"}})
	if got := s.Pick(s.Query(0, []*lb.Endpoint{b}), []*lb.Endpoint{b}); got != b {
		t.Errorf("picked %v of one that has failed", got)
	}
}

// TestLoadReported: requests that wait for a slot are said apart, and batch requests that wait are no load.
func TestLoadReported(t *testing.T) {
	s, l := newTestService(t)
	if got, want := s.Load(), (lb.Load{SinceResponse: -1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.Shared.pending.Store(5)
	s.Shared.streams.Store(2)
	for _, isBatch := range []bool{true, false, false} {
		s.Shared.slots.Waiting.Add(isBatch)
	}
	s.Responded(l.Now(), 0)
	l.now += 3 * time.Millisecond
	if got, want := s.Load(), (lb.Load{Pending: 6, Queued: 2, SinceResponse: 3 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.Responded(l.Now()+time.Second, 20*time.Millisecond) // of a loop whose clock is ahead
	s.Shared.pending.Store(0)
	s.Shared.streams.Store(0)
	if got, want := s.Load(), (lb.Load{Queued: 2, Latency: 20 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestShortestLatency: a latency of a nanosecond is one.
func TestShortestLatency(t *testing.T) {
	s, l := newTestService(t)
	s.Took(l.Now(), 1)
	if got := s.Load().Latency; got != 1 {
		t.Errorf("the latency is %v", got)
	}
}

// TestWatched: a service counts by the millisecond once it is asked, and for ten seconds after the last time. A few
// services of a loop do so at a time.
func TestWatched(t *testing.T) {
	first, l := newTestService(t)
	services := []*Service{first}
	for range maxWatched {
		services = append(services, newService(first.Shard, "", nil, NewMember(config.DefaultService("s"), Member{}, 1)))
	}
	serve := func(s *Service) {
		s.Arrived(l.Now(), 10)
		s.Concluded(l.Now(), stats.Outcome2xx, 20, 3*time.Millisecond, true)
		s.Arrived(l.Now(), 1)
		s.Concluded(l.Now(), stats.OutcomeCancelled, 2, time.Minute, false)
	}
	for i, s := range services {
		serve(s)
		if m, ok := s.Milliseconds(0); ok != (i < maxWatched) || ok && m.End() != int64(l.Now()/time.Millisecond) {
			t.Errorf("service %d: %t, up to %d", i, ok, m.End())
		}
	}
	for _, s := range services {
		serve(s)
	}
	at := int64(l.Now() / time.Millisecond)
	l.advance(time.Millisecond)
	m, ok := first.Milliseconds(at)
	if !ok || len(m.List) != 1 {
		t.Fatalf("%+v, %t", m, ok)
	}
	if got := m.List[0]; got.Arrivals != 2 || got.Answers != 1 || got.BytesIn != 11 || got.BytesOut != 20 || got.Worst != 3*time.Millisecond {
		t.Errorf("counted %+v", got)
	}
	for _, step := range []struct {
		after time.Duration
		count int // of services
	}{{watchTime - time.Millisecond - 1, maxWatched}, {1, 1}} {
		l.advance(step.after)
		n := 0
		for _, s := range services {
			if s.watched != nil {
				n++
			}
		}
		if n != step.count || first.watched == nil {
			t.Errorf("%d services count, want %d", n, step.count)
		}
	}
	if _, ok := services[maxWatched].Milliseconds(0); !ok || first.Shard.Watched != 2 {
		t.Errorf("%d services count", first.Shard.Watched)
	}
	first.Concluded(l.Now(), stats.Outcome5xx, 0, time.Minute, false)
	s := first.Stats
	if s.Requests != 4 || s.BytesIn != 22 || s.BytesOut != 44 || s.Outcomes[stats.Outcome2xx] != 2 || s.Outcomes[stats.OutcomeCancelled] != 2 || s.Latency.Count() != 2 {
		t.Errorf("counted %+v", s)
	}
}

// TestTotals: a report of totals has no endpoints.
func TestTotals(t *testing.T) {
	s, l := newTestService(t)
	withEndpoints(s, nil, nil)
	s.Arrived(l.Now(), 10)
	if r := s.Report(stats.Totals); r.Name != "s" || r.Stats.Requests != 1 || len(r.Endpoints) != 0 {
		t.Errorf("%+v", r)
	}
	if r := s.Report(stats.Counters); len(r.Endpoints) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestReport: what a report says of endpoints and routes, and how much with which detail.
func TestReport(t *testing.T) {
	s, l := newTestService(t)
	s.Set.Outlier = outlier.Rules{Consecutive: 2, Base: time.Minute, MaxEjected: 0.5}
	withEndpoints(s, &noConnections{}, nil)
	s.Set.Retune()
	bad, busy := s.Set.At(0), s.Set.At(1)
	for range 2 {
		bad.Judge(l.Now(), false)
	}
	busy.Start(l.Now())
	busy.OpenStream(l.Now())
	busy.Judge(l.Now(), true)
	s.HeardLoad(l.Now(), busy, lb.Load{Pending: 7, SinceResponse: -1})
	busy.Ext.(*Endpoint).CountSent(100, false, true)
	policy := hedge.Policy{Mode: hedge.On, Delay: 7 * time.Millisecond, MinDelay: time.Millisecond, MaxDelay: time.Second, Budget: 0.1, Max: 1}
	s.Routes = []HedgedRoute{{Route: hedge.NewRoute(policy, 1), Index: 3}}
	s.Routes[0].Counts.HedgesWon = 5
	s.Stats.HedgesWon = 1 // of routes that are gone
	for _, d := range []stats.Detail{stats.Counters, stats.Verdicts} {
		r := s.Report(d)
		if r.Name != "s" || r.Stats.HedgesWon != 6 || r.Stats.Ejections[outlier.ByConsecutive] != 1 || r.Panics || r.Breaker != stats.BreakerNone || r.HedgesInFlight != 0 || len(r.Endpoints) != 2 || len(r.Routes) != 1 {
			t.Fatalf("%+v", r)
		}
		if e := r.Endpoints[0]; e.Addr != "a" || !e.Ejected || e.EjectedBy != outlier.ByConsecutive || e.Ejections != 1 || e.FailedInRow != 2 || e.Connections != 1 || e.Pending != 0 {
			t.Errorf("%+v", e)
		}
		if e := r.Endpoints[1]; e.Addr != "b" || e.Ejected || e.RecentGood != 1 || e.FailedInRow != 0 || e.Pending != 2 || e.Connections != 1 ||
			!e.Reported || e.Others == 0 || e.Stats.Hedges != 1 || e.Stats.BytesIn != 100 {
			t.Errorf("%+v", e)
		}
		route := r.Routes[0]
		if route.Route != 3 || route.Mode != hedge.On || route.Delay != policy.Delay || route.Counts.HedgesWon != 5 || (route.Effect != nil) != (d != stats.Counters) {
			t.Errorf("%+v", route)
		}
	}
	s.RetireRoute(s.Routes[0].Route)
	if s.Routes = nil; s.Counts().HedgesWon != 6 {
		t.Errorf("%d hedges won after the route has gone", s.Counts().HedgesWon)
	}
}

// TestReportShadow: a report has what hedging with some delays would do, the delay in force first.
func TestReportShadow(t *testing.T) {
	s, _ := newTestService(t)
	policy := hedge.Policy{Mode: hedge.Shadow, Delay: 7 * time.Millisecond, MinDelay: 1, MaxDelay: time.Second, Budget: 0.1, Max: 1}
	s.Routes = []HedgedRoute{{Route: hedge.NewRoute(policy, 1)}}
	if r := s.Report(stats.Verdicts).Routes[0]; len(r.Forecasts) == 0 || r.Forecasts[0].Delay != policy.Delay {
		t.Errorf("%+v", r.Forecasts)
	}
}

// TestThresholdOutdated: the threshold of stalls is that of the slowest route. It is computed anew after a while, and at once
// after a change of the configuration.
func TestThresholdOutdated(t *testing.T) {
	s, l := newTestService(t)
	withEndpoints(s, nil, nil)
	slowest := func(want time.Duration) {
		t.Helper()
		s.Pick(s.Query(0, nil), nil)
		if at := s.Set.Stall; at.After != want || at.Probe != want {
			t.Errorf("stalled after %v, probes after %v, want %v", at.After, at.Probe, want)
		}
	}
	of := func(delays ...time.Duration) (all []HedgedRoute) {
		for _, d := range delays {
			all = append(all, HedgedRoute{Route: hedge.NewRoute(hedge.Policy{Mode: hedge.On, Delay: d, MinDelay: 1, MaxDelay: d}, 1)})
		}
		return all
	}
	const ms = time.Millisecond
	s.Routes = of(5*ms, 20*ms, 7*ms)
	slowest(20 * ms)
	s.Routes = of(30 * ms)
	l.now += thresholdEvery - 1
	slowest(20 * ms)
	l.now++
	slowest(30 * ms)
	s.Routes = of(40 * ms)
	slowest(30 * ms)
	s.Configure(Member{SharedService: s.Shared, cfg: s.Config, bounds: s.Bounds})
	slowest(40 * ms)
	s.Routes = of(50 * ms)
	l.now = -time.Second // the time is 0
	s.Configure(Member{SharedService: s.Shared, cfg: s.Config, bounds: s.Bounds})
	slowest(50 * ms)
}

// TestUpdate: a service is known once each loop has a snapshot. A loop ignores a snapshot that another has overtaken.
func TestUpdate(t *testing.T) {
	loops := []*stillLoop{{}, {}}
	services := servicesOn(config.Default(), config.DefaultService("s"), loops)
	shared := services[0].Shared
	first, second := snapshotOf("a", "down"), snapshotOf("a", "b")
	if shared.Known() || shared.Newest() != nil {
		t.Error("known before a snapshot")
	}
	shared.Update(second, "")
	shared.Update(first, "")
	if loops[0].runPosts(); shared.Known() {
		t.Error("known although a loop has no snapshot")
	}
	if loops[1].runPosts(); !shared.Known() || shared.Newest() != first {
		t.Error("not known")
	}
	for i, s := range services {
		if s.Set.Len() != 2 || s.Version != second.Version {
			t.Errorf("loop %d: %d endpoints of version %d", i, s.Set.Len(), s.Version)
		}
	}
	before := [2]*Endpoint{services[0].Set.At(0).Ext.(*Endpoint), services[0].Set.At(1).Ext.(*Endpoint)}
	if before[0].ID == before[1].ID || before[0].retired || before[1].retired {
		t.Errorf("endpoints %d and %d, retired %t and %t", before[0].ID, before[1].ID, before[0].retired, before[1].retired)
	}
	shared.Update(first.Again(), "")
	loops[0].runPosts()
	if before[0].retired || !before[1].retired {
		t.Errorf("retired: %t and %t, want the second endpoint, which is gone", before[0].retired, before[1].retired)
	}
	if s := services[0]; s.Set.Len() != 1 || s.Set.At(0).Addr != "a" {
		t.Errorf("%d endpoints: one is down", s.Set.Len())
	}
}

// TestLooks: while requests are in flight, a service looks each tenth of a second at its endpoints, and chooses the delays of its routes. A
// loop that is late looks a turn later.
func TestLooks(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		inFlight bool
		late     time.Duration
		again    bool // a timer is armed after the first turn
		chosen   bool // then
	}{
		"idle": {false, 0, false, true}, "a request": {true, 0, true, true}, "a late loop": {false, time.Second, true, false},
	} {
		s, l := newTestService(t)
		withEndpoints(s, nil, nil)
		route := hedge.NewRoute(hedge.Policy{Mode: hedge.On, MinDelay: ms, MaxDelay: 50 * ms, Budget: .05, Max: 1}, 1)
		s.Routes = []HedgedRoute{{Route: route}}
		for i := range 5000 {
			took := 4*ms + time.Duration(i%64)*ms/32
			if i%20 == 0 {
				took = 49 * ms
			}
			route.Latencies.Observe(l.Now(), took, 0)
		}
		s.stalls.keepFresh(l.Now())
		if c.inFlight {
			s.Set.At(0).Start(l.Now())
		}
		chosen := func() bool {
			best := route.Delays.Best()
			return best.Known()
		}
		l.advance(lookEvery + c.late)
		if got := len(l.timers) > 0; got != c.again || chosen() != c.chosen {
			t.Errorf("%s: it looks again %t, a delay is chosen %t", name, got, chosen())
		}
		if l.advance(0); !chosen() {
			t.Errorf("%s: no delay is chosen", name)
		}
	}
}

// TestReportStalls: a report has the period of stalls, and the time of day of the latest, as far as there is a clock.
func TestReportStalls(t *testing.T) {
	s, l := newTestService(t)
	s.Shard.Process.WallClock = func() time.Time { return time.Unix(1000, 0) }
	if r := s.Report(stats.Counters); r.Stalls.Every != 0 || !r.StalledAt.IsZero() {
		t.Errorf("%+v at %v without a stall", r.Stalls, r.StalledAt)
	}
	const every, length = 10 * time.Second, time.Second
	for range 8 {
		s.Hedging.Stalls.Look(l.Now(), false, 0, 0)
		onset := l.Now()
		l.now += length
		s.Hedging.Stalls.Look(l.Now(), true, onset, 0)
		s.Hedging.Stalls.Look(l.Now(), false, 0, 0)
		l.now += every - length
	}
	r := s.Report(stats.Counters)
	if want := time.Unix(1000, 0).Add(r.Stalls.Last - l.Now()); (r.Stalls.Every-every).Abs() > time.Millisecond || !r.StalledAt.Equal(want) {
		t.Errorf("%+v at %v", r.Stalls, r.StalledAt)
	}
}

// TestNoteSilence: no hedge would have helped a request that endpoints let wait which were silent together, as an endpoint shows that
// responds or reports its load now.
func TestNoteSilence(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		after, silence time.Duration
		want           bool
	}{{10 * ms, 50 * ms, true}, {10 * ms, 10 * ms, true}, {10 * ms, 10*ms - 1, false}, {1, 50 * ms, true}, {0, 50 * ms, false}} {
		for how, note := range map[string]func(s *Service, now time.Duration, ep *lb.Endpoint){
			"responds": (*Service).NoteSilence,
			"reports":  func(s *Service, now time.Duration, ep *lb.Endpoint) { s.HeardLoad(now, ep, lb.Load{}) },
		} {
			s, l := newTestService(t)
			withEndpoints(s, nil, nil)
			s.Set.Stall = lb.Stall{After: c.after}
			began := l.Now()
			for i := range s.Set.Len() {
				s.Set.At(i).Start(began)
			}
			l.now += c.silence
			note(s, l.Now(), s.Set.At(0))
			if got := s.Hedging.Together.Covers(began, l.Now()); got != c.want {
				t.Errorf("silent for %v, one %s, at least %v: %t", c.silence, how, c.after, got)
			}
		}
	}
}

// TestAlone: a service with one endpoint at most is alone.
func TestAlone(t *testing.T) {
	s, _ := newTestService(t)
	for n, want := range []bool{true, true, false} {
		s.Set.Update([]lb.Target{{Addr: "a"}, {Addr: "b"}}[:n])
		if s.Alone() != want {
			t.Errorf("%d endpoints: alone %t", n, !want)
		}
	}
}

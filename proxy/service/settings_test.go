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
	"github.com/remora-proxy/remora/proxy/unwanted"
	"github.com/remora-proxy/remora/registry"
)

// TestSettings: the settings of a service reach its parts, also after a reload.
func TestSettings(t *testing.T) {
	c := config.DefaultService("s")
	s := servicesOn(config.Default(), c, []*stillLoop{{}})[0]
	s.connectors = Protocols{"opaque": {Opaque: true}}
	more := *c
	more.Protocol, more.Cancel = "opaque", config.CancelClose
	more.LB.Policy, more.LB.Hash, more.LB.SlowStart, more.LB.Panic = config.LBConsistentHash, config.Hash{Path: true, Balance: 1.5}, time.Second, 0.3
	more.Outlier = config.Outlier{Consecutive: 3, SuccessRate: 0.4, Latency: 5, Base: time.Minute, MaxEjected: 0.2}
	s.Configure(Member{SharedService: s.Shared, cfg: &more, bounds: s.Bounds})
	if want := (outlier.Rules{Consecutive: 3, SuccessRate: 0.4, Latency: 5, Base: time.Minute, MaxEjected: 0.2}); s.Set.Outlier != want {
		t.Errorf("outlier ejection: %+v", s.Set.Outlier)
	}
	if s.Set.Policy != lb.PolicyOf(config.LBConsistentHash) || s.Set.Balance != 1.5 || s.Set.SlowStart != time.Second || s.Set.PanicThreshold != 0.3 {
		t.Errorf("picks: policy %v, balance %v, slow start %v, panic %v", s.Set.Policy, s.Set.Balance, s.Set.SlowStart, s.Set.PanicThreshold)
	}
	if !s.Opaque || s.Unwanted.Mode != unwanted.Close || s.Unwanted.Loops != 1 || s.Sessions == nil || s.Sessions.Keys == nil {
		t.Errorf("opaque %t, unwanted work %v on %d loops, sessions %v", s.Opaque, s.Unwanted.Mode, s.Unwanted.Loops, s.Sessions)
	}
	if s.Configure(Member{SharedService: s.Shared, cfg: c, bounds: s.Bounds}); s.Opaque || s.Sessions != nil || s.Unwanted.Mode != unwanted.Auto {
		t.Errorf("after a reload: opaque %t, unwanted work %v", s.Opaque, s.Unwanted.Mode)
	}
}

// snapshotOf returns a snapshot with these endpoints.
func snapshotOf(addrs ...string) *registry.Snapshot {
	var all []registry.Endpoint
	for _, addr := range addrs {
		all = append(all, registry.Endpoint{Addr: addr, Weight: 1})
	}
	return registry.NewSnapshot("s", registry.SourceLive, time.Unix(1, 0), all)
}

// TestSubset: a process uses as many endpoints as lb.subset says.
func TestSubset(t *testing.T) {
	for subset, want := range map[int]int{0: 4, 2: 2} {
		c, l := config.DefaultService("s"), &stillLoop{}
		c.LB.Subset = subset
		s := servicesOn(config.Default(), c, []*stillLoop{l})[0]
		s.Shared.Update(snapshotOf("a", "b", "c", "d"), "node")
		if l.runPosts(); s.Set.Len() != want {
			t.Errorf("of a subset of %d: %d endpoints", subset, s.Set.Len())
		}
	}
}

// TestLoadOfProcess: the attempts of a loop are load of the endpoint on all loops, through snapshots.
func TestLoadOfProcess(t *testing.T) {
	loops := []*stillLoop{{}, {}}
	services := servicesOn(config.Default(), config.DefaultService("s"), loops)
	update := func(addrs ...string) {
		services[0].Shared.Update(snapshotOf(addrs...), "")
		for _, l := range loops {
			l.runPosts()
		}
	}
	update("a")
	services[0].Set.At(0).Start(loops[0].Now())
	update("a", "b")
	services[0].Set.Lookup("a").Start(loops[0].Now())
	for i, s := range services {
		if a, b := s.Set.Lookup("a").OfProcess(), s.Set.Lookup("b").OfProcess(); a != 2 || b != 0 {
			t.Errorf("loop %d: the load is %d and %d", i, a, b)
		}
	}
}

// TestForgottenAnswers: the answer of an endpoint that has left the service counts no more.
func TestForgottenAnswers(t *testing.T) {
	l := &stillLoop{}
	s := servicesOn(config.Default(), config.DefaultService("s"), []*stillLoop{l})[0]
	s.connectors = Protocols{"": {Connector: func(*Service, *Endpoint) Connections { return &noConnections{} }}}
	s.Shared.Update(snapshotOf("a", "b"), "")
	l.runPosts()
	gone := s.Set.Lookup("a")
	s.Probes.Answered(gone, lb.Load{})
	s.Shared.Update(snapshotOf("b"), "")
	l.runPosts()
	q := s.Query(0, nil)
	if e := s.Probes.Best(&q); e != nil {
		t.Errorf("%s is the best, and has gone: %t", e.Addr, e == gone)
	}
	if s.Probes.pool.Enough(l.Now(), 1) {
		t.Error("the answer is enough for a pick")
	}
}

// endTurn calls what was deferred until the end of the turn.
func (l *stillLoop) endTurn() {
	for !l.flushes.Empty() {
		for _, f := range l.flushes.Take() {
			f.Do()
		}
	}
}

// waiter is a Waiter that notes how long it has waited.
type waiter struct {
	Place
	granted []time.Duration
}

func (w *waiter) Granted(waited time.Duration) { w.granted = append(w.granted, waited) }

// TestSlotGivenBack: a slot goes at the end of the turn to the request that waits for it, and can be given back once.
func TestSlotGivenBack(t *testing.T) {
	s, l := newTestService(t)
	s.Admission.slots.Limit.Store(1)
	s.Admission.slots.MaxQueue.Store(5)
	var first, second waiter
	first.Init(&first)
	second.Init(&second)
	s.Admission.Admit(&first.Place, &Ask{})
	s.Admission.Admit(&second.Place, &Ask{})
	l.now += time.Second
	s.Admission.GiveBack(&first.Place)
	s.Admission.GiveBack(&first.Place)
	if l.endTurn(); len(second.granted) != 1 || second.granted[0] != time.Second || !second.HasSlot() || first.HasSlot() {
		t.Errorf("granted after %v", second.granted)
	}
	s.Admission.GiveBack(&second.Place)
	s.Admission.GiveBack(&second.Place)
	if used, queued := s.Shared.SlotsInUse(); used != 0 || queued != 0 {
		t.Errorf("%d slots in use, %d wait", used, queued)
	}
}

// TestSlotFreedMeanwhile: a request that queues although a slot is free, since another one comes first, gets that slot once the other
// does not want it.
func TestSlotFreedMeanwhile(t *testing.T) {
	s, l := newTestService(t)
	sl := s.Admission.slots
	sl.Limit.Store(1)
	sl.MaxQueue.Store(5)
	sl.Waiting.Add(false) // another loop has counted a request, and not queued it yet
	var w waiter
	w.Init(&w)
	if got := s.Admission.Admit(&w.Place, &Ask{}); got != SlotQueued {
		t.Errorf("admitted: %d", got)
	}
	if l.endTurn(); len(w.granted) != 1 || !w.HasSlot() {
		t.Errorf("granted after %v", w.granted)
	}
}

// TestSlotOfOtherLoop: a slot goes to the loop where a request has waited longest, whichever loops have the service.
func TestSlotOfOtherLoop(t *testing.T) {
	const loops = 4
	c, l := config.DefaultService("s"), [loops]*stillLoop{}
	of, m := &shard.Process{Loops: loops}, NewMember(c, Member{}, loops)
	var services [loops]*Service
	for i := 1; i < loops; i++ { // the first loop has no service
		l[i] = &stillLoop{now: time.Duration(loops-i) * time.Second}
		w := shard.New(of, i, l[i], nil, 1)
		w.Configure(config.Default())
		m.Prepare(w, "", nil)
		services[i] = m.Follow(w)
	}
	sl := services[1].Admission.slots
	sl.Limit.Store(1)
	sl.MaxQueue.Store(5)
	var places [loops]waiter
	services[1].Admission.Admit(&places[0].Place, &Ask{})
	for i := 1; i < loops; i++ {
		places[i].Init(&places[i])
		services[i].Admission.Admit(&places[i].Place, &Ask{})
	}
	services[1].Admission.GiveBack(&places[0].Place)
	for i := 1; i < loops; i++ {
		l[i].runPosts()
		l[i].endTurn()
		if got := len(places[i].granted) == 1; got != (i == loops-1) {
			t.Errorf("loop %d has a slot: %t", i, got)
		}
	}
}

// TestDelaysInTurn: a look makes a few choices of delays anew, and those of all routes in turn.
func TestDelaysInTurn(t *testing.T) {
	const ms, routes = time.Millisecond, choosePerLook + 2
	s, l := newTestService(t)
	for range routes {
		r := hedge.NewRoute(hedge.Policy{Mode: hedge.On, MinDelay: ms, MaxDelay: 50 * ms, Budget: .05, Max: 1}, 1)
		for i := range 5000 {
			took := 4*ms + time.Duration(i%64)*ms/32
			if i%20 == 0 {
				took = 49 * ms
			}
			r.Latencies.Observe(l.Now(), took, 0)
		}
		s.Routes = append(s.Routes, HedgedRoute{Route: r})
	}
	for _, want := range []int{choosePerLook, routes} {
		s.stalls.chooseDelays(l.Now())
		known := 0
		for _, r := range s.Routes {
			if best := r.Delays.Best(); best.Known() {
				known++
			}
		}
		if known != want {
			t.Errorf("%d delays are chosen, want %d", known, want)
		}
	}
}

// TestEndpointCounts: what an endpoint counts of attempts. Only what the application has finished has a latency.
func TestEndpointCounts(t *testing.T) {
	var e Endpoint
	e.CountSent(1, true, false)
	e.CountSent(2, false, true)
	e.CountSent(4, false, false)
	for how := range stats.AttemptOutcome(stats.AttemptOutcomes) {
		e.CountEnd(how, time.Millisecond)
		if e.stats.Outcomes[how] != 1 {
			t.Errorf("%s: counted %d times", how, e.stats.Outcomes[how])
		}
	}
	if s := e.stats; s.Retries != 1 || s.Hedges != 1 || s.BytesIn != 7 || s.Latency.Count() != 2 {
		t.Errorf("%d retries, %d hedges, %d bytes, %d latencies", s.Retries, s.Hedges, s.BytesIn, s.Latency.Count())
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

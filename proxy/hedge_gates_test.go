package proxy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// stream sends calls at random moments, so many a second on average, from now on
// for d, whatever becomes of them.
func (m *mesh) stream(seed uint64, rate float64, d time.Duration) (calls []*call) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for at, end := m.w.Now(), m.w.Now()+d; at < end; {
		c := m.post(10)
		calls = append(calls, c)
		m.w.At(at, func() { m.do(c) })
		at += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
	}
	return calls
}

// finishStream runs the world past the end of a stream of d, and until all of its
// calls are done.
func (m *mesh) finishStream(d time.Duration, calls []*call) {
	m.t.Helper()
	m.w.Run(d) // looking at every call after each event would take long
	m.finish(calls...)
}

// lognormal gives the applications service times of 1 ms in the median.
func (m *mesh) lognormal(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, a := range m.apps {
		a.delay = func() time.Duration {
			return time.Duration(math.Exp(rnd.NormFloat64()/2) * float64(time.Millisecond))
		}
	}
}

// When all replicas freeze at once, hedges can't help: hardly any is sent, and
// the counters say why.
func TestCorrelatedStallsAreNotHedged(t *testing.T) {
	const (
		rate   = 2000
		freeze = 100 * time.Millisecond
		every  = 2 * time.Second
		length = 11 * time.Second
	)
	m := newMesh(t, meshOptions{service: `, idempotent: true, timeout: 2s, hedge: {mode: on}`})
	m.lognormal(1)
	calls := m.stream(1, rate, length)
	during, requests := uint64(0), uint64(0)
	for at := every; at < length-freeze; at += every {
		var before hedge.Counts
		m.w.At(at, func() {
			before = m.consumer.stats("compute").Counts
			for _, a := range m.apps {
				a.frozen = at + freeze
			}
		})
		m.w.At(at+freeze, func() {
			after := m.consumer.stats("compute")
			during += after.Hedges - before.Hedges
			requests += after.Primaries - before.Primaries
		})
	}
	m.finishStream(length+time.Second, calls)
	m.ok(calls...)
	m.settled()
	s := m.consumer.stats("compute")
	t.Logf("%d hedges for %d requests during freezes; in all %d for %d, gates %v", during, requests, s.Hedges, s.Primaries, s.Gates)
	if requests < 500 || during*100 > requests {
		t.Errorf("%d hedges for %d requests during the freezes, want at most 1%% of some", during, requests)
	}
	if s.Gates[hedge.Correlated] < requests/2 || s.Hedges == during {
		t.Errorf("gates %v, %d hedges: want correlated in the freezes, and hedges between them", s.Gates, s.Hedges)
	}
}

// With all replicas at twice their capacity hedges only add to the load. What is
// answered in time must be what it is without them, whether a provider's sidecar
// turns them away or the replicas queue them.
func TestOverloadIsNotMadeWorse(t *testing.T) {
	for name, o := range map[string]meshOptions{
		"provider refuses": {provider: ", max_concurrency: 1, max_queue: 64",
			service: ", idempotent: true, timeout: 100ms"},
		"replica queues": {direct: true, service: ", idempotent: true, timeout: 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			without, _ := goodput(t, o, "off")
			with, s := goodput(t, o, "on")
			t.Logf("%d answered without, %d with hedging; %d hedges, %d missed, %d won, gates %v",
				without, with, s.Hedges, s.HedgesMissed, s.HedgesWon, s.Gates)
			if without == 0 || with*100 < without*99 {
				t.Errorf("%d answered with hedging, %d without; want at least 99%%", with, without)
			}
			if s.Hedges == 0 {
				t.Error("no hedge was sent: the experiment shows nothing")
			}
		})
	}
}

// goodput is the number of requests that are answered of 6 s at twice of what
// the replicas can do, one request at a time.
func goodput(t *testing.T, o meshOptions, mode string) (n int, s *proxy.ServiceStats) {
	const work = 2 * time.Millisecond
	o.service += ", hedge: {mode: " + mode + "}"
	m := newMesh(t, o)
	for _, a := range m.apps {
		var free time.Duration
		a.delay = func() time.Duration {
			free = max(free, m.w.Now()) + work
			return free - m.w.Now()
		}
	}
	capacity := float64(len(m.apps)) / work.Seconds()
	calls := m.stream(1, 2*capacity, 6*time.Second)
	m.finishStream(9*time.Second, calls)
	for _, c := range calls {
		if c.status == 200 {
			n++
		}
	}
	return n, m.consumer.stats("compute")
}

// Replicas that are all slow alike, and never stop, can't be helped by hedges:
// after some hundreds that did not win, only probes are sent.
func TestUselessHedgesStop(t *testing.T) {
	m := newMesh(t, meshOptions{service: `, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}`})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 8 * time.Millisecond }
	}
	calls := m.stream(1, 500, 4*time.Second)
	m.finishStream(5*time.Second, calls)
	m.ok(calls...)
	s := m.consumer.stats("compute")
	if s.Gates[hedge.Useless] < 1000 || s.Hedges > 400 {
		t.Errorf("%d hedges of %d requests, %d won, gates %v; want them to stop", s.Hedges, s.Primaries, s.HedgesWon, s.Gates)
	}
	// Every third answer is slow from now on: probes find that hedging helps.
	for _, a := range m.apps {
		n := 0
		a.delay = func() time.Duration {
			if n++; n%3 == 0 {
				return 40 * time.Millisecond
			}
			return 8 * time.Millisecond
		}
	}
	won := s.HedgesWon
	calls = m.stream(2, 500, 4*time.Second)
	m.finishStream(5*time.Second, calls)
	m.ok(calls...)
	m.settled()
	if s = m.consumer.stats("compute"); s.HedgesWon < won+20 {
		t.Errorf("%d more hedges won, gates %v; want hedging to come back", s.HedgesWon-won, s.Gates)
	}
}

// A provider without a limit refuses hedges while its application is stalled, or
// has far more to do than usual; what is no hedge goes through.
func TestHedgeNeverQueuesWithoutALimit(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, service: `, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`})
	m.warm(150)
	second := m.nodes[2]
	m.apps[1].frozen = m.w.Now() + 200*time.Millisecond
	m.consumer.update("compute", m.endpoint(1))
	stuck := m.burst(8, 10)
	pending := func() bool { return second.proc.Pending() == len(stuck) }
	if !m.w.RunUntil(pending, time.Second) {
		t.Fatal("the requests did not arrive")
	}
	m.w.Run(50 * time.Millisecond)
	m.apps[0].frozen = m.w.Now() + 100*time.Millisecond
	hedged := 0
	m.apps[1].seen = func(req *protocol.Request) {
		if protocol.Find(req.Headers, "x-remora-attempt") != nil {
			hedged++
		}
	}
	// The consumer is new to the second, and so does not know how it is.
	m.consumer.update("compute", m.endpoint(0))
	late := m.post(10)
	m.do(late)
	m.w.Run(2 * time.Millisecond)
	m.consumer.update("compute", m.endpoint(0), m.endpoint(1))
	if !m.w.RunUntil(func() bool { return m.consumer.stats("compute").Hedges > 0 }, time.Second) {
		t.Fatal("no hedge was sent")
	}
	m.finish(append(stuck, late)...)
	m.ok(append(stuck, late)...)
	m.settled()
	if s := m.consumer.stats("compute"); hedged != 0 || s.HedgesMissed == 0 {
		t.Errorf("%d hedges reached the stalled application, %d missed; want none and some", hedged, s.HedgesMissed)
	}
}

// A request asks for its hedge until it gets one, but no more often than anybody could
// tell the difference, however short the delay: the loop has other things to do.
func TestAsksAreBounded(t *testing.T) {
	for _, delay := range []string{"delay: 1ns", "min_delay: 0s, max_delay: 0s", "delay: 0s, min_delay: 0s, max_delay: 0s", "delay: 3us, max: 8"} {
		for _, mode := range []string{"on", "shadow"} {
			t.Run(mode+" "+delay, func(t *testing.T) {
				m := newMesh(t, meshOptions{apps: 2, service: `, idempotent: true, timeout: 5s, hedge: {mode: ` + mode + `, budget: 0.04, ` + delay + `}`})
				m.finishStream(100*time.Millisecond, m.stream(1, 2000, 100*time.Millisecond)) // its hedges take all there is
				before := m.consumer.stats("compute").Gates
				asked := func() (n uint64) {
					for g, now := range m.consumer.stats("compute").Gates {
						n += now - before[g]
					}
					return n
				}
				for _, a := range m.apps {
					a.frozen = m.w.Now() + time.Second
				}
				one := m.post(10)
				m.do(one)
				m.w.RunUntil(func() bool { return one.done || asked() > 10_000 }, 2*time.Second)
				m.ok(one)
				if n := asked(); n > 4_000 {
					t.Errorf("asked %d times within a second", n)
				}
			})
		}
	}
}

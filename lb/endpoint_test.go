package lb

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

const ms = time.Millisecond

func one(t *testing.T) (*Set, *Endpoint) {
	t.Helper()
	s := &Set{}
	added, _ := s.Update([]Target{{Addr: "a"}})
	return s, added[0]
}

func TestStalled(t *testing.T) {
	const after = 5 * ms
	for _, c := range []struct {
		name string
		do   func(e *Endpoint)
		at   time.Duration
		want bool
	}{
		{"nothing pending", func(e *Endpoint) {}, 100 * ms, false},
		{"one pending is just slow", func(e *Endpoint) {
			e.Start(0)
		}, 100 * ms, false},
		{"two pending, silent", func(e *Endpoint) {
			e.Start(0)
			e.Start(1 * ms)
		}, 5 * ms, true},
		{"not for long enough", func(e *Endpoint) {
			e.Start(0)
			e.Start(1 * ms)
		}, 5*ms - 1, false},
		{"idle before: counted from the start of the oldest", func(e *Endpoint) {
			e.Start(0)
			e.Finish(1*ms, 1*ms)
			e.Start(100 * ms)
			e.Start(101 * ms)
		}, 104 * ms, false},
		{"idle before, then silent", func(e *Endpoint) {
			e.Start(0)
			e.Finish(1*ms, 1*ms)
			e.Start(100 * ms)
			e.Start(101 * ms)
		}, 105 * ms, true},
		{"any answer is a sign of life", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Start(0)
			e.Finish(4*ms, 4*ms)
		}, 8 * ms, false},
		{"silent since the last answer", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Start(0)
			e.Finish(4*ms, 4*ms)
		}, 9 * ms, true},
		{"a dropped attempt is no sign of life", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Start(0)
			e.Drop()
		}, 5 * ms, true},
		{"but with all dropped there was nothing to answer", func(e *Endpoint) {
			e.Start(0)
			e.Drop()
			e.Start(4 * ms)
			e.Start(4 * ms)
		}, 8 * ms, false},
		{"a report of an answer to others", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Report(6*ms, Load{SinceResponse: 2 * ms}, 2)
		}, 8 * ms, false},
		{"a report of an answer just now", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Report(6*ms, Load{}, 2)
		}, 8 * ms, false},
		{"a report of an answer long ago", func(e *Endpoint) {
			e.Start(2 * ms)
			e.Start(2 * ms)
			e.Report(6*ms, Load{SinceResponse: 5 * ms}, 2)
		}, 7 * ms, true},
		{"a report of an answer before the one that we had", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Start(0)
			e.Finish(4*ms, 4*ms)
			e.Report(5*ms, Load{SinceResponse: 5 * ms}, 2)
		}, 8 * ms, false},
		{"a report of no answer at all", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Report(4*ms, Load{SinceResponse: -1}, 2)
		}, 5 * ms, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := one(t)
			s.Stall.After = after
			c.do(e)
			if got := s.Stalled(c.at, e); got != c.want {
				t.Errorf("stalled: %v, want %v", got, c.want)
			}
			if e.Stalled(c.at, 0) {
				t.Error("stalled although after is 0")
			}
		})
	}
}

func TestPendingUnderflow(t *testing.T) {
	for name, end := range map[string]func(*Endpoint){
		"answered": func(e *Endpoint) { e.Finish(0, 0) },
		"dropped":  func(e *Endpoint) { e.Drop() },
	} {
		t.Run(name, func(t *testing.T) {
			_, e := one(t)
			e.Start(0)
			end(e)
			defer func() {
				if recover() == nil {
					t.Error("no panic when an attempt ended twice")
				}
				if e.Pending() != 0 {
					t.Errorf("pending is %d", e.Pending())
				}
			}()
			end(e)
		})
	}
}

func TestLatency(t *testing.T) {
	_, e := one(t)
	answer := func(at, latency time.Duration) {
		e.Start(at - latency)
		e.Finish(at, latency)
	}
	answer(10*ms, 8*ms)
	if e.Latency() != 8*ms {
		t.Errorf("after one response: %v", e.Latency())
	}
	answer(20*ms, 16*ms)
	if e.Latency() != 9*ms {
		t.Errorf("after a second, an eighth of it: %v", e.Latency())
	}
	e.Report(30*ms, Load{Latency: 50 * ms}, 0)
	if e.Latency() != 9*ms {
		t.Errorf("a report replaced the measured latency: %v", e.Latency())
	}
	answer(520*ms, 1*ms)
	if e.Latency() != 5*ms {
		t.Errorf("after half a second's pause the new one is half: %v", e.Latency())
	}
	if e.latency.At(1519*ms) == 0 || e.latency.At(1520*ms) != 0 {
		t.Error("a latency is recent for one second")
	}
	e.Report(1600*ms, Load{Latency: 50 * ms}, 0)
	if e.Latency() != 50*ms || e.latency.At(1600*ms) != 50*ms {
		t.Errorf("reported, with nothing recent: %v", e.Latency())
	}
	e.Start(2 * sec)
	e.Finish(2*sec, 0)
	if _, n := e.record.Latencies(); n != 3 || e.Latency() != 50*ms {
		t.Errorf("after a failure there are %d latencies, the recent one is %v", n, e.Latency())
	}
	if e.Report(3*sec, Load{}, 0); e.Latency() != 50*ms {
		t.Errorf("a report of an unknown latency makes it %v", e.Latency())
	}
}

// Loops of one process see each other's attempts at once, without reports.
func TestProcessCount(t *testing.T) {
	var here, there Set
	targets := []Target{{Addr: "a"}, {Addr: "b"}}
	here.Update(targets)
	there.Update(targets)
	for i := range targets {
		n := new(atomic.Int32)
		here.At(i).CountIn(n)
		there.At(i).CountIn(n)
	}
	rnd := rand.NewPCG(1, 1)
	there.At(0).Start(0)
	for range 20 {
		if e := here.Pick(Query{Now: 0, Rand: rnd}); e.Addr != "b" {
			t.Fatal("picked the endpoint with an attempt of another loop")
		}
	}
	there.At(0).Drop()
	if n := here.At(0).OfProcess(); n != 0 {
		t.Errorf("%d pending after the only one was dropped", n)
	}
}

// TestProcessChange: another count of the process takes over what this loop has at the endpoint.
func TestProcessChange(t *testing.T) {
	_, e := one(t)
	e.Start(0)
	e.OpenStream(0)
	e.Start(0)
	e.CountBatch(1)
	var first, second atomic.Int32
	for _, n := range []*atomic.Int32{&first, &second, &second} {
		e.CountIn(n)
		if got := n.Load(); got != 2 || e.OfProcess() != 2 {
			t.Errorf("counts %d, and %d of the process, want 2", got, e.OfProcess())
		}
	}
	if first.Load() != 0 {
		t.Errorf("the first count still has %d", first.Load())
	}
}

// Open streams count as load, and their silence is no stall.
func TestStreams(t *testing.T) {
	var s Set
	s.Stall = Stall{After: time.Millisecond, Probe: time.Millisecond}
	s.Update([]Target{{Addr: "a", Weight: 1}, {Addr: "b", Weight: 1}})
	a := s.Lookup("a")
	for range 3 {
		a.OpenStream(0)
	}
	if a.OfProcess() != 3 || a.Pending() != 0 || a.Streams() != 3 {
		t.Errorf("own %d, pending %d, streams %d", a.OfProcess(), a.Pending(), a.Streams())
	}
	if a.Stalled(time.Hour, s.Stall.After) || a.Silence(time.Hour) != 0 {
		t.Error("open streams look like a stall")
	}
	rnd := rand.NewPCG(1, 2)
	for range 20 {
		if got := s.Pick(Query{Now: 0, Rand: rnd}); got.Addr != "b" {
			t.Fatalf("picked %s, which has three streams", got.Addr)
		}
	}
	var process atomic.Int32
	a.CountIn(&process)
	if process.Load() != 3 {
		t.Errorf("the process counts %d", process.Load())
	}
	for range 3 {
		a.CloseStream()
	}
	if process.Load() != 0 || a.OfProcess() != 0 {
		t.Errorf("%d left of the process, %d of the endpoint", process.Load(), a.OfProcess())
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic when a stream ended that was not opened")
		}
	}()
	a.CloseStream()
}

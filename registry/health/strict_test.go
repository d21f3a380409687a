package health

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestStrictStart: with a strict check the first snapshot waits for the first verdict on each endpoint, since it would
// have no endpoint before. One pass is enough for a first verdict. A verdict of before a reload counts, and an endpoint that comes later waits for its own.
func TestStrictStart(t *testing.T) {
	strict := fast
	strict.Strict = true
	one, two, late := newScripted(t), newScripted(t), newScripted(t)
	start := func(known Verdicts, endpoints ...registry.Endpoint) (*source, chan *registry.Snapshot) {
		src, got := &source{first: endpoints}, make(chan *registry.Snapshot, 100)
		f := Follow(src, "s", Options{Check: strict, Protocol: "http", Verdicts: known, Logger: slog.New(slog.DiscardHandler)},
			func(s *registry.Snapshot) { got <- s })
		t.Cleanup(f.Stop)
		return src, got
	}
	want := func(got chan *registry.Snapshot, down ...bool) {
		t.Helper()
		s := receive(t, "a snapshot", got)
		if len(s.Endpoints) != len(down) {
			t.Fatalf("%+v, want %d endpoints", s.Endpoints, len(down))
		}
		for _, e := range s.Endpoints {
			for i, app := range []*scripted{one, two, late}[:len(down)] {
				if e.Addr == app.addr && (e.Down != down[i] || e.Unhealthy != down[i]) {
					t.Errorf("endpoint %d of %d: %+v, want it down: %t", i+1, len(down), e, down[i])
				}
			}
		}
	}
	src, got := start(nil, registry.Endpoint{Addr: one.addr}, registry.Endpoint{Addr: two.addr})
	receive(t, "the first check of one", one.asked)
	receive(t, "the first check of two", two.asked)
	one.answer <- 200
	receive(t, "the second check of one", one.asked) // its first verdict is known
	select {
	case s := <-got:
		t.Fatalf("a snapshot before the first check of two: %+v", s.Endpoints)
	default:
	}
	two.answer <- 503
	want(got, false, true)
	src.set(registry.Endpoint{Addr: one.addr}, registry.Endpoint{Addr: two.addr}, registry.Endpoint{Addr: late.addr})
	want(got, false, true, true)
	receive(t, "the first check of late", late.asked)
	late.answer <- 200
	want(got, false, true, false)

	_, again := start(Verdicts{one.addr: {healthy: true}, two.addr: {}}, registry.Endpoint{Addr: one.addr}, registry.Endpoint{Addr: two.addr})
	want(again, false, true)
}

// TestHoldsBack: how long the first snapshot of a strict check waits. Endpoints that don't respond, and endpoints that come
// meanwhile, delay it by no more than the time of one check, if another endpoint is healthy.
func TestHoldsBack(t *testing.T) {
	const before, after = timeout - 1, timeout
	for _, c := range []struct {
		since   time.Duration // the first snapshot of the watcher
		targets string        // u up, d down, . unchecked, - can't be checked
		want    bool
	}{
		{0, "", false}, {0, "ud", false}, {0, "dd", false}, {0, "--", false},
		{0, "..", true}, {before, "u.", true}, {before, "d.", true}, {before, "-.", true},
		{after, "u.", false}, {after, "-.", false}, {time.Hour, "..u..", false},
		{after, "d.", true}, {time.Hour, "....", true},
	} {
		began := time.Unix(1, 0)
		f := &Follower{opt: Options{Check: Check{Strict: true, Timeout: timeout}}, began: began, targets: make(map[string]*target)}
		var all []registry.Endpoint
		for i, state := range c.targets {
			e := registry.Endpoint{Addr: fmt.Sprint("10.0.0.1:", i+1)}
			all = append(all, e)
			if state != '-' {
				f.targets[e.Addr] = &target{addr: e.Addr, checked: state != '.', judge: judge{healthy: state == 'u', unproven: state != 'u'}}
			}
		}
		f.in = registry.NewSnapshot("s", registry.SourceLive, began, all)
		if got := f.holdsBack(began.Add(c.since)); got != c.want {
			t.Errorf("%q after %v: %t", c.targets, c.since, got)
		}
		f.delivered = began
		if f.holdsBack(began.Add(c.since)) {
			t.Errorf("%q: a later snapshot waits", c.targets)
		}
	}
}

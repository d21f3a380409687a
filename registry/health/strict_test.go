package health

import (
	"log/slog"
	"testing"

	"github.com/remora-proxy/remora/registry"
)

// TestStrictStart: with a strict check the first snapshot waits for the first verdict on each endpoint, since it would
// have no endpoint before. A verdict of before a reload counts, and an endpoint that comes later waits for its own.
func TestStrictStart(t *testing.T) {
	strict := fast
	strict.Strict, strict.Healthy = true, 1
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

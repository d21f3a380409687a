package lb

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestBackoff: refusals lengthen the gap between two requests up to a second, and requests that are taken end
// it. Outcomes of requests that were sent before it grew count for nothing.
func TestBackoff(t *testing.T) {
	s := &Set{}
	s.Update(numbered(2, even))
	e := s.At(0)
	e.CountTaken(0)
	if e.Refuses() {
		t.Fatal("a gap without a refusal")
	}
	now := time.Duration(0)
	for want := gapLeast; want < gapMost; want *= 2 {
		now += sec
		for range 10 { // one burst
			e.CountNoRoom(now, now-1)
			e.CountTaken(now - 1)
		}
		if e.gap != want {
			t.Fatalf("the gap is %v, want %v", e.gap, want)
		}
		now++
		e.Start(now)
		e.Drop()
		if !e.waits(now+e.gap-1, e.started) || e.waits(now+e.gap, e.started) {
			t.Errorf("the next request does not come after the gap of %v", e.gap)
		}
	}
	for range 2 { // at the bound, and past it
		now += sec
		if e.CountNoRoom(now, now); e.gap != gapMost {
			t.Errorf("the gap is %v, want %v", e.gap, gapMost)
		}
	}
	probes, lasts := 0, time.Duration(0)
	for e.Refuses() {
		probes, lasts = probes+1, lasts+e.gap
		e.CountTaken(now)
	}
	if probes != 52 || lasts < 7*sec || lasts > 8*sec {
		t.Errorf("it took %d requests and %v to end the gap", probes, lasts)
	}
}

// TestBackoffAtOnce: a request counts that was sent in the moment in which the gap grew, and after the gap each refusal.
func TestBackoffAtOnce(t *testing.T) {
	var b Backoff
	b.grow(sec, 0)
	if b.grow(2*sec, sec); b.gap != 2*gapLeast {
		t.Errorf("a refusal makes the gap %v", b.gap)
	}
	if b.CountTaken(2 * sec); b.gap != 2*gapLeast-2*gapLeast/gapShrink {
		t.Errorf("a request that is taken makes the gap %v", b.gap)
	}
	for b.Refuses() {
		b.CountTaken(2 * sec)
	}
	if b.grow(3*sec, sec); b.gap != gapLeast {
		t.Errorf("a refusal of an earlier request makes the gap %v after its end", b.gap)
	}
	b.gap = gapLeast * gapShrink / (gapShrink - 1)
	if b.CountTaken(3 * sec); b.gap != gapLeast {
		t.Errorf("a gap that shrinks to the least one becomes %v", b.gap)
	}
}

// TestPickWithoutRoom: endpoints with a gap get a request only when it is due, as long as another
// has room. Then all are picked, and HasRoom says that there is none.
func TestPickWithoutRoom(t *testing.T) {
	for _, p := range Policies {
		s, name := &Set{Policy: p.Policy}, p.Name
		s.Update(numbered(3, even))
		s.Retune()
		q := Query{Now: sec, Rand: rand.NewPCG(1, 2)}
		if name == "consistent_hash" {
			q.Key = 12345 << 40
		}
		for i := range 2 {
			s.At(i).Start(sec)
			s.At(i).Drop()
			s.At(i).CountNoRoom(sec, sec)
		}
		for range 100 {
			if e := s.Pick(q); e != s.At(2) {
				t.Fatalf("%s: picked %s, want that with room", name, e.Addr)
			}
		}
		if e := s.PickHedge(Query{Now: sec, Rand: q.Rand, Tried: []*Endpoint{s.At(2)}}, false); e != nil {
			t.Errorf("%s: a hedge to %s, which has no room", name, e.Addr)
		}
		if !s.HasRoom(q) {
			t.Errorf("%s: no room", name)
		}
		q.Tried = []*Endpoint{s.At(2)}
		if s.HasRoom(q) {
			t.Errorf("%s: room although all others refuse", name)
		}
		if e := s.Pick(q); e == nil {
			t.Errorf("%s: none is picked", name)
		}
		if q.Now += gapLeast; !s.HasRoom(q) {
			t.Errorf("%s: no room although a request is due", name)
		}
	}
}

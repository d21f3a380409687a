package registry

import (
	"testing"
	"time"
)

// origin is a watcher whose snapshots the test makes.
type origin struct {
	begun, ended int
	notify       func(*Snapshot)
}

func (o *origin) Watch(_ string, notify func(*Snapshot)) (stop func()) {
	o.begun++
	o.notify = notify
	return func() { o.ended++ }
}

func (o *origin) set(addrs ...string) *Snapshot {
	endpoints := []Endpoint{}
	for _, addr := range addrs {
		endpoints = append(endpoints, Endpoint{Addr: addr})
	}
	s := NewSnapshot("s", SourceLive, time.Unix(1, 0), endpoints)
	o.notify(s)
	return s
}

// recorder checks that versions grow, and keeps the snapshots.
type recorder struct {
	t    *testing.T
	seen []*Snapshot
}

func (r *recorder) notify(s *Snapshot) {
	if n := len(r.seen); n > 0 && s.Version <= r.seen[n-1].Version {
		r.t.Errorf("version %d after %d", s.Version, r.seen[n-1].Version)
	}
	r.seen = append(r.seen, s)
}

func (r *recorder) expect(n int, addr string) {
	r.t.Helper()
	if len(r.seen) != n || n > 0 && r.seen[n-1].Endpoints[0].Addr != addr {
		r.t.Errorf("%d snapshots: %+v; want %d, the last with %s", len(r.seen), r.seen, n, addr)
	}
}

// TestShare checks that all watches of a service share one, which ends with the last of
// them. A later watch gets the last snapshot at once, with a version above all others.
func TestShare(t *testing.T) {
	o := &origin{}
	s := Share(o)
	first, second := &recorder{t: t}, &recorder{t: t}
	stop := s.Watch("s", first.notify)
	first.expect(0, "")
	o.set("a:1")
	first.expect(1, "a:1")

	between := NewSnapshot("s", SourceLive, time.Unix(1, 0), nil)
	stopSecond := s.Watch("s", second.notify)
	second.expect(1, "a:1")
	if second.seen[0].Version <= between.Version {
		t.Error("the snapshot of a later watch has an older version")
	}
	// A snapshot made before the second watch began must also get a newer version.
	late := NewSnapshot("s", SourceLive, time.Unix(2, 0), []Endpoint{{Addr: "b:1"}})
	stop()
	stop()
	o.notify(late)
	first.expect(1, "a:1")
	second.expect(2, "b:1")
	if o.begun != 1 || o.ended != 0 {
		t.Errorf("begun %d times, ended %d times", o.begun, o.ended)
	}

	if services, endpoints := s.Held(); services != 1 || endpoints != 1 {
		t.Errorf("%d services with %d endpoints", services, endpoints)
	}
	third := &recorder{t: t}
	var stopThird func()
	stopThird = s.Watch("s", func(s *Snapshot) {
		third.notify(s)
		if len(third.seen) == 2 {
			stopThird()
		}
	})
	o.set("c:1")
	o.set("d:1")
	third.expect(2, "c:1")
	second.expect(4, "d:1")
	stopSecond()
	if o.begun != 1 || o.ended != 1 {
		t.Errorf("at the end begun %d times, ended %d times", o.begun, o.ended)
	}
	if services, endpoints := s.Held(); services != 0 || endpoints != 0 {
		t.Errorf("at the end %d services with %d endpoints", services, endpoints)
	}
	fourth := &recorder{t: t}
	defer s.Watch("s", fourth.notify)()
	fourth.expect(0, "")
	if o.begun != 2 {
		t.Errorf("begun %d times after the end", o.begun)
	}
}

// TestShareStopped checks that stopped watches are dropped even without a delivery.
func TestShareStopped(t *testing.T) {
	s := Share(&origin{})
	defer s.Watch("s", func(*Snapshot) {})()
	for range 100 {
		s.Watch("s", func(*Snapshot) {})()
	}
	if n := len(s.services["s"].users); n > 2 {
		t.Errorf("%d watches are kept", n)
	}
}

package dns

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
)

// TestOthersEnd: the second addresses of a service end with its last watch. A watch that a newer one has replaced
// does not take those of the newer one along.
func TestOthersEnd(t *testing.T) {
	others := new(Others)
	w := New(fixed{{Addr: "a.example.test:80"}}, Options{Others: others, Lookup: func(context.Context, string) (Answer, error) {
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, TTL: -1}, nil
	}})
	defer w.Close()
	watch := func() (stop func()) {
		got := make(chan []registry.Endpoint, 10)
		stop = w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
		receive(t, got)
		return stop
	}
	left := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.watches) }
	older := watch()
	newer := watch()
	older()
	eventually.True(t, "the older watch to end", func() bool { return left() == 1 })
	if other := others.Of("s", "10.0.0.1:80"); other != "[fd00::1]:80" {
		t.Errorf("the newer watch has %q", other)
	}
	newer()
	eventually.True(t, "the newer watch to end", func() bool { return left() == 0 })
	if !others.Empty() {
		t.Error("a service that nobody watches has second addresses")
	}
}

// TestOthersOfTwo: while one watch of a service replaces another, neither takes the second addresses of the other
// along, in whatever order they say what they know.
func TestOthersOfTwo(t *testing.T) {
	known := map[string]string{"10.0.0.1:80": "[fd00::1]:80"}
	older, newer := new(watch), new(watch)
	for name, act := range map[string]func(o *Others){
		"the older knows none":         func(o *Others) { o.set("s", newer, known); o.set("s", older, nil) },
		"the older is late, then ends": func(o *Others) { o.set("s", newer, known); o.set("s", older, known); o.forget(older) },
		"the older knows another": func(o *Others) {
			o.set("s", newer, known)
			o.set("s", older, map[string]string{"10.0.0.2:80": "[fd00::2]:80"})
		},
		"the newer knows none any more": func(o *Others) { o.set("s", older, known); o.set("s", newer, known); o.set("s", newer, nil) },
	} {
		o := new(Others)
		act(o)
		if other := o.Of("s", "10.0.0.1:80"); other != "[fd00::1]:80" {
			t.Errorf("%s: the other address is %q", name, other)
		}
		o.forget(older)
		if o.forget(newer); !o.Empty() {
			t.Errorf("%s: some are left", name)
		}
	}
}

// TestOthersAtOnce: watches that replace each other all the time leave the last one's second addresses.
func TestOthersAtOnce(t *testing.T) {
	others := new(Others)
	w := New(fixed{{Addr: "a.example.test:80"}}, Options{Others: others, Interval: time.Nanosecond, Lookup: func(context.Context, string) (Answer, error) {
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, TTL: -1}, nil
	}})
	defer w.Close()
	stop := func() {}
	for range 200 {
		before := stop
		got := make(chan []registry.Endpoint, 1000)
		stop = w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
		receive(t, got)
		before()
		if other := others.Of("s", "10.0.0.1:80"); other != "[fd00::1]:80" {
			t.Fatalf("the last watch has %q", other)
		}
	}
}

// TestTooManyOthersKnown: a service has no more second addresses than it may have endpoints.
func TestTooManyOthersKnown(t *testing.T) {
	const names = registry.MaxEndpoints/maxAddrs + 1 // whose addresses are one name's too many
	synctest.Test(t, func(t *testing.T) {
		var all fixed
		for i := range names {
			all = append(all, registry.Endpoint{Addr: fmt.Sprintf("%d.test:80", i)})
		}
		others := new(Others)
		w := New(all, Options{Others: others, Interval: time.Hour, Lookup: func(_ context.Context, host string) (Answer, error) {
			var i int
			_, err := fmt.Sscanf(host, "%d", &i)
			a := Answer{TTL: -1, Addrs: addrs("fd00::1")}
			for k := range maxAddrs {
				a.Addrs = append(a.Addrs, netip.AddrFrom4([4]byte{10, 1, byte(i), byte(k)}))
			}
			return a, err
		}})
		w.Watch("s", func(*registry.Snapshot) {})
		time.Sleep(time.Minute)
		synctest.Wait()
		known := 0
		for i := range names {
			for k := range maxAddrs {
				if others.Of("s", fmt.Sprintf("10.1.%d.%d:80", i, k)) != "" {
					known++
				}
			}
		}
		if w.Close(); known != registry.MaxEndpoints {
			t.Errorf("%d second addresses, want %d", known, registry.MaxEndpoints)
		}
	})
}

package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestSlowNames checks that names without an answer do not delay others, neither at the
// start nor later.
func TestSlowNames(t *testing.T) {
	var all fixed
	for i := range parallel - 1 {
		all = append(all, registry.Endpoint{Addr: fmt.Sprintf("slow%d.test:80", i)})
	}
	all = append(all, registry.Endpoint{Addr: "a.test:80"})
	answers := make(chan string)
	w := New(all, Options{Timeout: time.Hour, Interval: time.Millisecond, Lookup: func(ctx context.Context, host string) (Answer, error) {
		if host == "a.test" {
			select {
			case addr := <-answers:
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, TTL: -1}, nil
			case <-ctx.Done():
			}
		}
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}})
	defer w.Close()
	got := make(chan []registry.Endpoint, 10)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		select {
		case answers <- addr:
		case <-time.After(timeout):
			t.Fatal("no lookup")
		}
		want := []registry.Endpoint{{Addr: addr + ":80", Weight: 1, Host: "a.test"}}
		if e := receive(t, got); !slices.Equal(e, want) {
			t.Errorf("got %v", e)
		}
	}
}

// TestFirstAddresses checks that a name without addresses is looked up again before the
// interval ends, after a pause that grows.
func TestFirstAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked []time.Duration
		w := New(fixed{{Addr: "a.test:80"}}, Options{Interval: time.Hour, Lookup: func(context.Context, string) (Answer, error) {
			if asked = append(asked, time.Since(begin)); len(asked) < 4 {
				return Answer{}, errors.New("not yet")
			}
			return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, TTL: -1}, nil
		}})
		got := make(chan []registry.Endpoint, 10)
		w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
		for _, want := range []int{0, 1} {
			if e := receive(t, got); len(e) != want {
				t.Errorf("got %v", e)
			}
		}
		w.Close()
		for i := 1; i < len(asked); i++ {
			if d, want := asked[i]-asked[i-1], minTTL<<(i-1); d < want || d > want*11/10 {
				t.Errorf("lookup %d is %v after the one before, want %v", i, d, want)
			}
		}
	})
	for _, c := range []struct {
		interval time.Duration
		tries    int
		want     time.Duration
	}{
		{time.Minute, 1, minTTL}, {time.Minute, 2, 2 * minTTL}, {time.Minute, 7, time.Minute}, {time.Minute, 1000, time.Minute}, {24 * time.Hour, 1000, 1024 * minTTL},
	} {
		o := Options{Interval: c.interval}
		checkSpread(t, fmt.Sprintf("%d tries at %v", c.tries, c.interval), c.want, func() time.Duration { return o.firstPause(c.tries) })
	}
	for range 50 {
		o := &Options{Interval: 1}
		if first, other := o.firstPause(1), o.pause(-1, nil); first != 1 || other != 1 {
			t.Fatalf("%v and %v for the shortest interval", first, other)
		}
	}
}

// TestDefaults: without other options a lookup may take five seconds, and is repeated every half minute.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked []time.Duration
		w := New(fixed{{Addr: "a.test:80"}}, Options{Lookup: func(ctx context.Context, _ string) (Answer, error) {
			asked = append(asked, time.Since(begin))
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != defaultTimeout {
				t.Errorf("a lookup ends at %v, %t", end, ok)
			}
			return Answer{Addrs: addrs("10.0.0.1"), TTL: -1}, nil
		}})
		w.Watch("s", func(*registry.Snapshot) {})
		time.Sleep(defaultInterval * 3 / 2)
		w.Close()
		if len(asked) != 2 || asked[0] != 0 || asked[1] < defaultInterval || asked[1] > defaultInterval*11/10 {
			t.Errorf("asked after %v", asked)
		}
	})
	w := New(fixed{{Addr: "localhost:80"}}, Options{})
	defer w.Close()
	got := make(chan []registry.Endpoint, 10)
	w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
	if e := receive(t, got); len(e) != 1 || e[0].Addr != "127.0.0.1:80" {
		t.Errorf("localhost is %v", e)
	}
}

// TestGather: answers that come soon after each other are in one snapshot, unless no other answer is on its way, or the list changes.
func TestGather(t *testing.T) {
	const ms = time.Millisecond
	type snapshot struct {
		at        time.Duration
		endpoints int
	}
	for name, c := range map[string]struct {
		answers []time.Duration // of the names, how long their lookups take
		more    time.Duration   // when the list has one address more; 0 means never
		want    []snapshot
	}{
		"one name":             {[]time.Duration{5 * ms}, 0, []snapshot{{5 * ms, 1}}},
		"all answer":           {[]time.Duration{0, 20 * ms, 40 * ms}, 0, []snapshot{{40 * ms, 3}}},
		"one is late":          {[]time.Duration{0, 50 * ms, 300 * ms}, 0, []snapshot{{100 * ms, 2}, {300 * ms, 3}}},
		"two are late":         {[]time.Duration{0, 300 * ms, 350 * ms, 900 * ms}, 0, []snapshot{{100 * ms, 1}, {400 * ms, 3}, {900 * ms, 4}}},
		"the list changes":     {[]time.Duration{0, 300 * ms}, 30 * ms, []snapshot{{30 * ms, 2}, {300 * ms, 3}}},
		"the list was changed": {[]time.Duration{20 * ms, 50 * ms, 300 * ms}, 10 * ms, []snapshot{{10 * ms, 1}, {120 * ms, 3}, {300 * ms, 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				in := &changing{}
				w := New(in, Options{Interval: time.Hour, Timeout: time.Hour, Lookup: func(_ context.Context, host string) (Answer, error) {
					i := int(host[0] - '0')
					time.Sleep(c.answers[i])
					return Answer{Addrs: addrs(fmt.Sprint("10.0.0.", i+1)), TTL: -1}, nil
				}})
				var got []snapshot
				w.Watch("s", func(s *registry.Snapshot) { got = append(got, snapshot{time.Since(begin), len(s.Endpoints)}) })
				synctest.Wait()
				var all []registry.Endpoint
				for i := range c.answers {
					all = append(all, registry.Endpoint{Addr: fmt.Sprintf("%d.test:80", i)})
				}
				in.set(all...)
				if c.more > 0 {
					time.Sleep(c.more)
					in.set(append(all, registry.Endpoint{Addr: "10.0.1.1:80"})...)
				}
				time.Sleep(time.Minute)
				w.Close()
				if !slices.Equal(got, c.want) {
					t.Errorf("snapshots %v, want %v", got, c.want)
				}
			})
		})
	}
}

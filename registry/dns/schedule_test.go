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
// interval ends.
func TestFirstAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := New(fixed{{Addr: "a.test:80"}}, Options{Interval: time.Hour, Lookup: func(context.Context, string) (Answer, error) {
			if asked++; asked < 3 {
				return Answer{}, errors.New("not yet")
			}
			return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, TTL: -1}, nil
		}})
		defer w.Close()
		got := make(chan []registry.Endpoint, 10)
		w.Watch("s", func(s *registry.Snapshot) { got <- s.Endpoints })
		for _, want := range []int{0, 1} {
			if e := receive(t, got); len(e) != want {
				t.Errorf("got %v", e)
			}
		}
	})
	o := Options{Interval: time.Minute}
	for tries, want := range map[int]time.Duration{1: minTTL, 2: 2 * minTTL, 7: time.Minute, 1000: time.Minute} {
		if d := o.firstPause(tries); d < want || d > want*11/10 {
			t.Errorf("%v after %d", d, tries)
		}
	}
}

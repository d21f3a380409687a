package dns

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// hanging returns a Lookup that returns each address once, and then blocks.
func hanging(addrs ...string) func(context.Context, string) (Answer, error) {
	left := make(chan string, len(addrs))
	for _, a := range addrs {
		left <- a
	}
	return func(ctx context.Context, _ string) (Answer, error) {
		select {
		case a := <-left:
			return Answer{Addrs: []netip.Addr{netip.MustParseAddr(a)}, TTL: -1}, nil
		default:
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}
	}
}

// TestKnownTwoWatches checks that the knowledge of one watch is not lost if another
// does not have it yet.
func TestKnownTwoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(fixed{{Addr: "a.test:80"}}, Options{Interval: time.Hour, Lookup: hanging("10.0.0.1")})
		defer w.Close()
		for _, service := range []string{"first", "second"} {
			w.Watch(service, func(*registry.Snapshot) {})
			synctest.Wait()
		}
		for range 100 { // in any order
			if a := w.Known().Texts()["a.test"]; len(a) != 1 {
				t.Fatalf("known addresses %v", a)
			}
		}
	})
}

// TestKnownExpiry checks that the knowledge of another Watcher is not used if a name is
// new much later.
func TestKnownExpiry(t *testing.T) {
	known := KnownFrom(map[string][]string{"a.test": {"10.0.0.1"}})
	for after, want := range map[time.Duration][]string{0: {"10.0.0.1:80"}, maxTTL: nil} {
		synctest.Test(t, func(t *testing.T) {
			w := New(fixed{{Addr: "a.test:80"}}, Options{Interval: time.Hour, Known: known, Lookup: hanging()})
			defer w.Close()
			time.Sleep(after)
			var got []string
			w.Watch("s", func(s *registry.Snapshot) {
				for _, e := range s.Endpoints {
					got = append(got, e.Addr)
				}
			})
			synctest.Wait()
			if !slices.Equal(got, want) {
				t.Errorf("after %v: got %v, want %v", after, got, want)
			}
		})
	}
}

// TestKnownFrom: which texts of another process say something.
func TestKnownFrom(t *testing.T) {
	for _, c := range []struct{ texts, want []string }{
		{[]string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}},
		{[]string{"10.0.0.1", "hosts"}, []string{"10.0.0.1", "hosts"}},
		{[]string{"::ffff:10.0.0.1", "fd00::1"}, []string{"10.0.0.1"}},
		{[]string{"10.0.0.256", "", "a.test:80"}, nil},
		{[]string{"a.test:80 3", "b.test:80 1"}, []string{"a.test:80 3", "b.test:80 1"}},
		{[]string{"a.test:80 0", "a.test:80 -1", "a.test:80 x", "a.test:80 "}, nil},
	} {
		if got := KnownFrom(map[string][]string{"h": c.texts}).Texts()["h"]; !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.texts, got, c.want)
		}
	}
}

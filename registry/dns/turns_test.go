package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestTurns: Watchers together have no more lookups in flight than they may, and all names get theirs. A Watcher can be closed
// while its names wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers = 50
		turns := newTurns(2, 3)
		var now, most, asked atomic.Int64
		var all []*Watcher
		for i := range watchers {
			w := New(fixed{{Addr: fmt.Sprintf("%d.a.test:80", i)}, {Addr: fmt.Sprintf("%d.b.test:80", i)}}, Options{
				Turns: turns, Interval: time.Hour, Timeout: 2 * time.Second,
				Lookup: func(ctx context.Context, _ string) (Answer, error) {
					asked.Add(1)
					n := now.Add(1)
					for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
					}
					defer now.Add(-1)
					select {
					case <-time.After(time.Second):
						return Answer{}, errors.New("no response")
					case <-ctx.Done():
						return Answer{}, ctx.Err()
					}
				},
			})
			w.Watch("s", func(*registry.Snapshot) {})
			all = append(all, w)
		}
		time.Sleep(10 * time.Second)
		for _, w := range all[:watchers/2] {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := most.Load(); n != 3 {
			t.Errorf("%d lookups at a time", n)
		}
		if n := asked.Load(); n < watchers {
			t.Errorf("%d lookups", n)
		}
		for _, w := range all[watchers/2:] {
			w.Close()
		}
		synctest.Wait()
		if n := len(turns.begun) + len(turns.inFlight); n != 0 {
			t.Errorf("%d turns were not given back", n)
		}
	})
}

// TestTurnsGivenUp: a lookup that is given up while it waits keeps no other one from beginning.
func TestTurnsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, turns := range map[string]*Turns{"for the beginning": newTurns(1, 2), "for the end of others": newTurns(2, 1)} {
			end, err := turns.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), turnTime/2)
			if _, err := turns.begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			end()
			synctest.Wait()
			if n := len(turns.begun) + len(turns.inFlight); n != 0 {
				t.Errorf("%s: %d turns were not given back", name, n)
			}
		}
	})
}

// TestTurnsOfHangingNames: names of which nothing is heard do not keep others from being looked up.
func TestTurnsOfHangingNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		var asked, answered atomic.Int64
		watcher := func(host string) *Watcher {
			return New(fixed{{Addr: host + ":80"}}, Options{
				Turns: turns, Timeout: time.Hour,
				Lookup: func(ctx context.Context, host string) (Answer, error) {
					if host == "good.test" {
						return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, TTL: -1}, nil
					}
					asked.Add(1)
					<-ctx.Done()
					answered.Add(1)
					return Answer{}, ctx.Err()
				},
			})
		}
		for i := range 400 {
			w := watcher(fmt.Sprintf("%d.test", i))
			defer w.Close()
			w.Watch("s", func(*registry.Snapshot) {})
		}
		synctest.Wait()
		known := make(chan *registry.Snapshot, 1)
		w := watcher("good.test")
		defer w.Close()
		w.Watch("s", func(s *registry.Snapshot) { known <- s })
		if s := <-known; len(s.Endpoints) != 1 || answered.Load() != 0 {
			t.Errorf("%v, after the end of %d of %d other lookups", s.Endpoints, answered.Load(), asked.Load())
		}
	})
}

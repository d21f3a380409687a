package dns

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestTurns: Watchers together have no more lookups in flight than there are turns, and all names get theirs. A Watcher can be closed
// while its names wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers = 50
		turns := make(Turns, 3)
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
		if len(turns) != 0 {
			t.Errorf("%d turns were not given back", len(turns))
		}
	})
}

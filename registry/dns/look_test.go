package dns

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
)

// TestSnapshotWithOutcome: a snapshot that comes together with the outcome of a lookup does not wait for other lookups.
func TestSnapshotWithOutcome(t *testing.T) {
	w := &Watcher{
		opt: Options{
			Interval: time.Hour, Timeout: time.Hour, gather: time.Hour,
			Lookup: func(ctx context.Context, host string) (Answer, error) {
				if host == "slow.test" {
					<-ctx.Done()
				}
				return Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, TTL: -1}, ctx.Err()
			},
		},
		tasks: tasks.New(), watches: make(map[*watch]struct{}), looking: true, // the test looks, and no goroutine
	}
	var got []string
	at := &watch{w: w, ctx: w.tasks.Context(), unwatch: func() {}, notify: func(s *registry.Snapshot) {
		got = nil
		for _, e := range s.Endpoints {
			got = append(got, e.Addr)
		}
	}}
	w.add(at)
	defer w.Close()
	put := func(addrs ...string) {
		var all []registry.Endpoint
		for _, a := range addrs {
			all = append(all, registry.Endpoint{Addr: a})
		}
		at.put(registry.NewSnapshot("s", registry.SourceLive, time.Now(), all))
	}
	put("slow.test:80", "quick.test:80")
	at.look()
	eventually.True(t, "an outcome", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(at.outcomes) == 1
	})
	put("slow.test:80", "quick.test:80", "10.0.0.2:80")
	at.look()
	if want := []string{"10.0.0.1:80", "10.0.0.2:80"}; !slices.Equal(got, want) {
		t.Errorf("in use are %v, want %v", got, want)
	}
}

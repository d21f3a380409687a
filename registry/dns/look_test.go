package dns

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) != 1 {
		t.Errorf("one watch is due %d times", len(w.due))
	}
}

// TestSameEndpoints: without names each snapshot of the inner watcher is delivered as it is, also one that has the same endpoints as the
// last one.
func TestSameEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &changing{}
		w := New(in, Options{})
		defer w.Close()
		var got []int64
		w.Watch("s", func(s *registry.Snapshot) { got = append(got, s.Revision) })
		synctest.Wait()
		for revision := range int64(3) {
			s := registry.NewSnapshot("s", registry.SourceLive, time.Now(), []registry.Endpoint{{Addr: "10.0.0.1:80", Weight: 1}})
			s.Revision = revision
			in.notify(s)
			synctest.Wait()
		}
		if !slices.Equal(got, []int64{0, 1, 2}) {
			t.Errorf("the revisions %v are delivered", got)
		}
	})
}

// lingering is a watcher whose Watch returns long after it has notified.
type lingering struct{ fixed }

func (l lingering) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	stop = l.fixed.Watch(service, notify)
	time.Sleep(time.Second)
	return stop
}

// TestSnapshotBeforeWatchReturns: a snapshot that comes before the Watch of the inner watcher has returned is delivered after that.
func TestSnapshotBeforeWatchReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(lingering{fixed{{Addr: "10.0.0.1:80"}}}, Options{})
		defer w.Close()
		got := 0
		w.Watch("s", func(s *registry.Snapshot) { got += len(s.Endpoints) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got != 1 {
			t.Errorf("%d endpoints are delivered", got)
		}
	})
}

// TestOneAtATime: a watch is notified of one snapshot at a time, in their order.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &changing{}
		w := New(in, Options{})
		isRunning := false
		var got []int
		w.Watch("s", func(s *registry.Snapshot) {
			if isRunning {
				t.Error("notified of two snapshots at a time")
			}
			isRunning = true
			time.Sleep(time.Second)
			isRunning = false
			got = append(got, len(s.Endpoints))
		})
		synctest.Wait()
		all := []registry.Endpoint{{Addr: "10.0.0.1:80"}, {Addr: "10.0.0.2:80"}, {Addr: "10.0.0.3:80"}}
		for i := range all {
			in.set(all[:i+1]...)
			time.Sleep(600 * time.Millisecond) // none comes when a call ends
		}
		time.Sleep(time.Minute)
		w.Close()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("notified of lists of %v endpoints", got)
		}
	})
}

// stopping is a watcher that counts the ends of its watches.
type stopping struct {
	changing
	stops int
}

func (s *stopping) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	s.changing.Watch(service, notify)
	return func() { s.stops++ }
}

// TestEndOnce: the watch of the inner watcher ends once, with stop or with Close. Nothing is delivered or known after that.
func TestEndOnce(t *testing.T) {
	for name, end := range map[string]func(stop func(), w *Watcher){
		"stop": func(stop func(), _ *Watcher) { stop(); stop() }, "Close": func(_ func(), w *Watcher) { w.Close(); w.Close() },
		"both": func(stop func(), w *Watcher) { stop(); w.Close(); stop() },
	} {
		synctest.Test(t, func(t *testing.T) {
			in := &stopping{}
			w := New(in, Options{Interval: time.Second, Lookup: hanging("10.0.0.1")})
			defer w.Close()
			snapshots := 0
			stop := w.Watch("s", func(*registry.Snapshot) { snapshots++ })
			synctest.Wait()
			in.set(registry.Endpoint{Addr: "a.test:80"})
			synctest.Wait()
			end(stop, w)
			synctest.Wait()
			in.set(registry.Endpoint{Addr: "10.0.0.2:80"})
			time.Sleep(time.Minute)
			if in.stops != 1 || snapshots != 1 || len(w.Known()) != 0 {
				t.Errorf("%s: ended %d times, %d snapshots, known are %v", name, in.stops, snapshots, w.Known())
			}
		})
	}
}

package etcd_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// watchers returns how many watches an etcd has. Those of servers that have ended count, too.
func watchers(t *testing.T, s *lab.Etcd) (n int) {
	t.Helper()
	resp, err := http.Get(s.Endpoint() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\netcd_debugging_mvcc_watcher_total ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// waitWatchers waits until an etcd has n watches, and none is left of servers before it.
func waitWatchers(t *testing.T, s *lab.Etcd, n int) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("%d watches", n), func() bool { return watchers(t, s) == n })
}

// TestManyServices: a watched service takes no goroutine, sees changes, and etcd forgets it when the watch stops. The short form
// has fewer services, and still more than the goroutines that others may start.
func TestManyServices(t *testing.T) {
	services := 1000
	if testing.Short() {
		services = 200
	}
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	var puts []clientv3.Op
	for i := range services {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s/s%d/n", prefix, i), `{"Op":0,"Addr":"10.0.0.1:80"}`))
	}
	for chunk := range slices.Chunk(puts, 100) {
		if _, err := client.Txn(ctx).Then(chunk...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, s.Endpoint(), nil)
	first := registrytest.Watch(t, r, "s0")
	first.WaitAddrs("10.0.0.1:80")
	waitWatchers(t, s, 1)
	goroutines := runtime.NumGoroutine()
	var all []*registrytest.Sink
	for i := 1; i < services; i++ {
		all = append(all, registrytest.Watch(t, r, fmt.Sprint("s", i)))
	}
	for _, sink := range all {
		sink.WaitAddrs("10.0.0.1:80")
	}
	waitWatchers(t, s, services)
	const others = 50 // of etcd, which runs in this process, and of its clients
	eventually.True(t, "the goroutines of lists to end", func() bool { return runtime.NumGoroutine() <= goroutines+others })
	for i := range services {
		put(t, ctx, client, fmt.Sprintf("s%d/n", i), `{"Op":0,"Addr":"10.0.0.2:80"}`)
	}
	for _, sink := range all {
		sink.WaitAddrs("10.0.0.2:80")
		sink.Stop()
	}
	first.WaitAddrs("10.0.0.2:80")
	waitWatchers(t, s, 1)
	if n := r.Stats().Lists; n < uint64(services) {
		t.Errorf("listed %d times, want at least %d", n, services)
	}
}

// TestStop: stop may be called in notify, which is not called again, and while the notify of another watch runs. Etcd forgets
// each watch, whatever it was about to do.
func TestStop(t *testing.T) {
	const rounds = 200
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	r := open(t, s.Endpoint(), nil)
	registrytest.Watch(t, r, "stays").WaitAddrs()
	waitWatchers(t, s, 1)
	keys := etcd.Keys(r)

	var within sync.WaitGroup
	for i := range rounds {
		within.Add(1)
		begun := make(chan struct{})
		calls := 0
		var stop func()
		stop = keys.Watch(fmt.Sprint("within", i), func(*registry.Snapshot) {
			<-begun
			if calls++; calls > 1 {
				t.Error("called after stop")
				return
			}
			stop()
			within.Done()
		})
		close(begun)
		put(t, ctx, client, fmt.Sprintf("within%d/n", i), `{"Op":0,"Addr":"10.0.0.1:80"}`)
	}
	within.Wait()
	for i := range rounds {
		listed := make(chan struct{}, 2)
		stop := keys.Watch(fmt.Sprint("after", i), func(*registry.Snapshot) { listed <- struct{}{} })
		<-listed
		stop() // about when etcd is asked for changes
	}
	busy, release := make(chan struct{}), make(chan struct{})
	blocked := keys.Watch("blocked", func(*registry.Snapshot) {
		close(busy)
		<-release
	})
	<-busy
	keys.Watch("not begun", func(*registry.Snapshot) { t.Error("called after stop") })()
	blocked()
	close(release)
	waitWatchers(t, s, 1)
}

// TestCompaction: a watch whose revisions are compacted before it opens lists again.
func TestCompaction(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	r := open(t, s.Endpoint(), nil)
	registrytest.Watch(t, r, "stays").WaitAddrs()
	waitWatchers(t, s, 1)
	keys := pausing{etcd.Keys(r), make(chan struct{}), make(chan struct{})}
	put(t, ctx, client, "s/1", `{"Op":0,"Addr":"10.0.0.1:80"}`)
	got := registrytest.Watch(t, keys, "s")
	<-keys.paused
	last := put(t, ctx, client, "s/1", `{"Op":0,"Addr":"10.0.0.2:80"}`)
	last = max(last, put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.3:80"}`))
	if _, err := client.Compact(ctx, last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	lists := r.Stats().Lists
	close(keys.resume)
	got.WaitAddrs("10.0.0.2:80", "10.0.0.3:80")
	if n := r.Stats().Lists - lists; n == 0 {
		t.Error("not listed again: the compaction did not affect the watch")
	}
	waitWatchers(t, s, 2)
}

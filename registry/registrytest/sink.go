package registrytest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// timeout bounds the wait for any event.
const timeout = time.Minute

// Sink collects the snapshots of one watch.
type Sink struct {
	t    *testing.T
	mu   sync.Mutex
	all  []*registry.Snapshot
	news chan struct{} // capacity 1
	// Stop ends the watch. It may be called again.
	Stop func()
}

// Watch watches service until the end of the test. Then it checks the promises of
// registry.Snapshot for all snapshots.
func Watch(t *testing.T, w registry.Watcher, service string) *Sink {
	t.Helper()
	s := &Sink{t: t, news: make(chan struct{}, 1)}
	s.Stop = w.Watch(service, func(snap *registry.Snapshot) {
		s.mu.Lock()
		s.all = append(s.all, snap)
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	})
	t.Cleanup(func() { s.Stop(); s.check() })
	return s
}

// History returns all snapshots so far.
func (s *Sink) History() []*registry.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// check checks the promises of registry.Snapshot for all snapshots.
func (s *Sink) check() {
	for i, snap := range s.History() {
		if i > 0 && snap.Version <= s.all[i-1].Version {
			s.t.Errorf("version %d after %d", snap.Version, s.all[i-1].Version)
		}
		if !slices.IsSortedFunc(snap.Endpoints, func(a, b registry.Endpoint) int { return strings.Compare(a.Addr, b.Addr) }) {
			s.t.Errorf("not sorted: %v", snap.Endpoints)
		}
	}
}

// Wait waits until ok returns true for the newest snapshot, and returns that.
func (s *Sink) Wait(what string, ok func(*registry.Snapshot) bool) *registry.Snapshot {
	s.t.Helper()
	deadline := time.After(timeout)
	for {
		if all := s.History(); len(all) > 0 && ok(all[len(all)-1]) {
			return all[len(all)-1]
		}
		select {
		case <-s.news:
		case <-deadline:
			s.t.Fatalf("timed out waiting for %s; snapshots: %s", what, Describe(s.History()))
		}
	}
}

// WaitAddrs waits until the newest snapshot has exactly these addresses.
func (s *Sink) WaitAddrs(addrs ...string) *registry.Snapshot {
	s.t.Helper()
	return s.Wait(strings.Join(addrs, " "), func(snap *registry.Snapshot) bool { return slices.Equal(addrsOf(snap), addrs) })
}

// Always fails the test if any snapshot so far lacks addr.
func (s *Sink) Always(addr string) {
	s.t.Helper()
	for _, snap := range s.History() {
		if !slices.Contains(addrsOf(snap), addr) {
			s.t.Fatalf("%s is missing: %s", addr, Describe(s.History()))
		}
	}
}

func addrsOf(s *registry.Snapshot) []string {
	var addrs []string
	for _, e := range s.Endpoints {
		addrs = append(addrs, e.Addr)
	}
	return addrs
}

// Describe returns the sources and addresses of snapshots.
func Describe(all []*registry.Snapshot) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString("\n\t" + string(s.Source) + ": " + strings.Join(addrsOf(s), " "))
	}
	return b.String()
}

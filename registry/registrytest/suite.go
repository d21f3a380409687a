// Package registrytest is the suite that each registry passes: what package registry
// promises of a Watcher, at the start, after changes, in an outage and after a start
// without the registry.
package registrytest

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// Client is a registry's client under test.
type Client interface {
	registry.Watcher
	Close() error
}

// Registry is a registry under test, with the endpoints that Run passed to its start.
// A function that the registry can't support is nil; the checks that need it are
// skipped.
type Registry struct {
	// Open makes a client, which the suite closes. The client keeps its cache in dir;
	// "" means no cache.
	Open func(t *testing.T, dir string) Client

	// Restricted makes a client without a cache whose endpoints obey the rule. nil means that the registry belongs to this host.
	Restricted func(t *testing.T, rule *reach.Rule) Client

	// Put adds or changes an endpoint of the service, and Remove removes it.
	Put    func(t *testing.T, e registry.Endpoint)
	Remove func(t *testing.T, e registry.Endpoint)

	// Cut makes the registry unreachable for clients, or reachable again.
	Cut func(cut bool)

	// Caches reports whether a client starts from its cache during an outage.
	Caches bool

	// Weightless reports whether all endpoints have the weight 1.
	Weightless bool
}

// Service is the name of the service whose endpoints a Registry has.
const Service = "compute"

// Endpoints of the service, in the order of addresses.
var (
	first  = registry.Endpoint{Addr: "10.0.0.1:80", Weight: 3, Zone: "a"}
	second = registry.Endpoint{Addr: "10.0.0.2:80", Weight: 1, Zone: "b"}
	third  = registry.Endpoint{Addr: "10.0.0.3:80", Weight: 1}
)

// Run runs the suite. start makes a new registry with these endpoints.
func Run(t *testing.T, start func(t *testing.T, endpoints ...registry.Endpoint) *Registry) {
	t.Run("first list", func(t *testing.T) { firstList(t, start(t, second, first)) })
	t.Run("change", func(t *testing.T) { change(t, start(t, first)) })
	t.Run("outage", func(t *testing.T) { outage(t, start(t, first, second)) })
	t.Run("refused addresses", func(t *testing.T) { refusedAddresses(t, start(t, first)) })
	t.Run("cold start", func(t *testing.T) { coldStart(t, start(t, first, second)) })
}

func open(t *testing.T, r *Registry, dir string) Client {
	c := r.Open(t, dir)
	t.Cleanup(func() { c.Close() })
	return c
}

// firstList checks that each watch gets the whole list in one snapshot, and that an
// unknown service has an empty list.
func firstList(t *testing.T, r *Registry) {
	c := open(t, r, "")
	one, two, unknown := Watch(t, c, Service), Watch(t, c, Service), Watch(t, c, "unknown")
	for _, s := range []*Sink{one, two} {
		s.WaitAddrs(first.Addr, second.Addr)
		snap := s.History()[0]
		if snap.Service != Service || snap.Source != registry.SourceLive || !slices.EqualFunc(snap.Endpoints, []registry.Endpoint{first, second}, r.same) {
			t.Errorf("the first snapshot is %+v", snap)
		}
	}
	unknown.WaitAddrs()
	one.Stop()
	one.Stop()
}

// same compares what the suite sets of an endpoint.
func (r *Registry) same(a, b registry.Endpoint) bool {
	return a.Addr == b.Addr && (a.Weight == b.Weight || r.Weightless) && a.Zone == b.Zone
}

// change checks that each change is delivered until the watch stops.
func change(t *testing.T, r *Registry) {
	if r.Put == nil {
		t.Skip("the list does not change")
	}
	c := open(t, r, "")
	s, stopped := Watch(t, c, Service), Watch(t, c, Service)
	s.WaitAddrs(first.Addr)
	stopped.WaitAddrs(first.Addr)
	stopped.Stop()
	before := len(stopped.History())
	r.Put(t, second)
	s.WaitAddrs(first.Addr, second.Addr)
	moved := first
	moved.Weight, moved.Zone = 9, "c"
	r.Put(t, moved)
	s.Wait("the new weight and zone", func(snap *registry.Snapshot) bool {
		return slices.ContainsFunc(snap.Endpoints, func(e registry.Endpoint) bool { return r.same(e, moved) })
	})
	r.Remove(t, first)
	s.WaitAddrs(second.Addr)
	if n := len(stopped.History()) - before; n > 0 {
		t.Errorf("%d snapshots after the end of a watch", n)
	}
}

// outage checks that the last list stays while the registry is unreachable, and that
// changes of that time are delivered afterwards.
func outage(t *testing.T, r *Registry) {
	if r.Cut == nil {
		t.Skip("there is nothing to reach")
	}
	s := Watch(t, open(t, r, ""), Service)
	s.WaitAddrs(first.Addr, second.Addr)
	r.Cut(true)
	r.Put(t, third)
	r.Remove(t, second)
	r.Cut(false)
	s.WaitAddrs(first.Addr, third.Addr)
	s.Always(first.Addr)
}

// coldStart checks that a client that starts in an outage has the endpoints of its
// cache, and the live ones afterwards.
func coldStart(t *testing.T, r *Registry) {
	if !r.Caches {
		t.Skip("the registry has no cache")
	}
	dir := t.TempDir()
	c := r.Open(t, dir)
	known := Watch(t, c, Service).WaitAddrs(first.Addr, second.Addr)
	c.Close()
	r.Cut(true)
	s := Watch(t, open(t, r, dir), Service)
	cached := s.WaitAddrs(first.Addr, second.Addr)
	if cached.Source != registry.SourceCache || !slices.Equal(cached.Endpoints, known.Endpoints) || !cached.Changed.Equal(known.Changed) {
		t.Errorf("from the cache: %+v, stored: %+v", cached, known)
	}
	r.Cut(false)
	s.Wait("a live list", func(snap *registry.Snapshot) bool { return snap.Source == registry.SourceLive })
	s.Always(first.Addr)
}

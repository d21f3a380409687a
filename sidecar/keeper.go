package sidecar

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/registry"
)

// keeper is a registry.Watcher of one service. While the service has no endpoint, but a host name without a known address, its
// last endpoints stay in use: they may still work. Those that have become a way back to this sidecar do not stay.
type keeper struct {
	inner   registry.Watcher
	refuses func(service, addr string) bool // reports whether an endpoint must not stay
	log     *slog.Logger
	tally   *registry.Tally // gets how many endpoints stay; nil means that nobody wants to know
	notify  func(*registry.Snapshot)

	mu   sync.Mutex          // held while a snapshot is delivered, so that the order is right
	last []registry.Endpoint // in use; at first those of the previous source
	over *registry.Snapshot  // that last is in use in place of; nil if last is from the newest snapshot

	version uint64 // of the snapshot that was delivered last
	count   *registry.Count
}

// Watch implements registry.Watcher. It is called once.
func (k *keeper) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	k.notify = notify
	k.count = registry.NewCount(k.tally)
	unwatch := k.inner.Watch(service, k.put)
	return func() {
		unwatch()
		k.count.End()
	}
}

func (k *keeper) put(s *registry.Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(s.Endpoints) > 0 || !s.Unresolved {
		k.last, k.over = s.Endpoints, nil
		k.count.Doubt(0)
		k.deliver(s)
		return
	}
	isNews := k.over == nil
	k.over = s
	k.dropRefused()
	if isNews && len(k.last) > 0 {
		k.log.Warn("no host name of a service has a usable address; its last endpoints stay in use", "service", s.Service, "endpoints", len(k.last))
	}
	k.deliverKept()
}

// judgeAgain has the endpoints that stay judged again, once other addresses may be ways back to this sidecar.
func (k *keeper) judgeAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != nil && k.dropRefused() {
		k.deliverKept()
	}
}

// dropRefused drops the endpoints that must not stay, and reports whether there were some. The caller holds mu.
func (k *keeper) dropRefused() (dropped bool) {
	before := len(k.last)
	k.last = slices.DeleteFunc(slices.Clone(k.last), func(e registry.Endpoint) bool { return k.refuses(k.over.Service, e.Addr) })
	return len(k.last) < before
}

// deliverKept delivers the endpoints that stay. The caller holds mu.
func (k *keeper) deliverKept() {
	k.count.Doubt(len(k.last))
	s := k.over.With(k.last)
	if len(k.last) > 0 {
		s.Revision = 0
	}
	k.deliver(s)
}

// deliver delivers s, which may have waited while a newer snapshot was made. The caller holds mu.
func (k *keeper) deliver(s *registry.Snapshot) {
	if s.Version <= k.version {
		s = s.Again()
	}
	k.version = s.Version
	k.notify(s)
}

// Package several makes one watcher of several sources of endpoints, for migrations. It knows neither what the sources
// are nor how endpoints are picked.
package several

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// patience is how long the first snapshot waits for sources that have said nothing. It is longer than a source waits
// before it uses its cache.
const patience = 2 * time.Second

// Watcher combines the snapshots of its sources.
//
// First has the endpoints of the first source that has some. Merge has those of all; of an address that several have, the
// entry of the first. A source that has gone silent still has its last endpoints: it is for the source to doubt and to
// forget them. A snapshot is live if the snapshots that it is made of are.
type Watcher struct {
	log     *slog.Logger
	sources []registry.Watcher
	merge   bool
}

var _ registry.Watcher = (*Watcher)(nil)

// First returns a Watcher for the endpoints of the first source that has some.
func First(log *slog.Logger, sources ...registry.Watcher) *Watcher {
	return &Watcher{log: log, sources: sources}
}

// Merge returns a Watcher for the endpoints of all sources.
func Merge(log *slog.Logger, sources ...registry.Watcher) *Watcher {
	return &Watcher{log: log, sources: sources, merge: true}
}

// Watch implements registry.Watcher. The first snapshot is delivered when all sources that may matter have said something,
// or after two seconds.
func (w *Watcher) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	t := &watch{of: w, service: service, notify: notify, heard: make([]*registry.Snapshot, len(w.sources))}
	for i, source := range w.sources {
		t.stops = append(t.stops, source.Watch(service, func(s *registry.Snapshot) { t.put(i, s) }))
	}
	time.AfterFunc(patience, t.waitNoLonger)
	return t.stop
}

// watch follows one service.
type watch struct {
	of      *Watcher
	service string
	notify  func(*registry.Snapshot)

	stopped atomic.Bool
	stops   []func() // end the watches of the sources; fixed after Watch

	mu        sync.Mutex           // held while a snapshot is delivered, so that the order is right
	heard     []*registry.Snapshot // of each source; nil means that it has said nothing
	impatient bool                 // heard is enough, whatever it lacks
	last      *registry.Snapshot   // delivered; nil means none
	limit     registry.Limit
}

func (t *watch) stop() {
	t.stopped.Store(true)
	for _, stop := range t.stops {
		stop()
	}
}

func (t *watch) put(i int, s *registry.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard[i] = s
	t.deliver()
}

func (t *watch) waitNoLonger() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.impatient = true
	t.deliver()
}

// deliver passes on what the sources have together, if that is known and has changed.
func (t *watch) deliver() {
	from := t.first
	if t.of.merge {
		from = t.all
	}
	parts := from()
	if len(parts) == 0 || t.stopped.Load() {
		return
	}
	var endpoints []registry.Endpoint
	source, changed, isUnresolved := registry.SourceLive, time.Time{}, false
	for _, p := range parts {
		endpoints = append(endpoints, p.Endpoints...)
		if p.Source != registry.SourceLive {
			source = p.Source
		}
		isUnresolved = isUnresolved || p.Unresolved
		if p.Changed.After(changed) {
			changed = p.Changed
		}
	}
	endpoints = t.limit.Cut(registry.Normalize(endpoints), t.service, t.of.log.Warn)
	if t.last != nil && t.last.Source == source && t.last.Unresolved == isUnresolved && slices.Equal(t.last.Endpoints, endpoints) {
		return
	}
	t.last = parts[0].With(endpoints)
	t.last.Source, t.last.Changed, t.last.Unresolved = source, changed, isUnresolved
	if len(parts) > 1 {
		t.last.Revision = 0
	}
	t.notify(t.last)
}

// first returns the snapshot of the first source that has endpoints, or all snapshots if none has some. nil means that an earlier source may
// have some.
func (t *watch) first() []*registry.Snapshot {
	var empty []*registry.Snapshot
	for _, s := range t.heard {
		switch {
		case s == nil && !t.impatient:
			return nil
		case s == nil:
		case len(s.Endpoints) > 0:
			return []*registry.Snapshot{s}
		default:
			empty = append(empty, s)
		}
	}
	return empty
}

// all returns the snapshots of all sources. nil means that some are missing.
func (t *watch) all() (parts []*registry.Snapshot) {
	for _, s := range t.heard {
		if s != nil {
			parts = append(parts, s)
		} else if !t.impatient {
			return nil
		}
	}
	return parts
}

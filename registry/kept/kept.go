// Package kept is what sources of endpoints have in common whose lists come whole: the last list of a service is kept
// while the source is silent. It knows neither where lists come from nor what they are used for.
//
// The rules, the same as those of etcd:
//
//   - While the source is silent, the last list stays, without a time limit.
//   - At a start with a silent source, the list comes from the cache on disk.
//   - An empty list after a list with endpoints, also of the cache, is doubted: the endpoints stay in use for AfterChange or
//     AfterReconnect, unless the source has others before. Sources that have just come back may be empty by mistake.
//
// An endpoint that is kept although it is gone costs a refused connection and a retry. An empty list would cost every
// request.
package kept

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// Options configures the Lists of a source. The zero value is usable.
type Options struct {
	Cache  *registry.Cache // nil means none
	Origin string          // of the cache's records; distinguishes sources
	Wait   time.Duration   // how long a start waits for the source before the cache is used; default 1 s
	Tally  *registry.Tally // gets what the lists have found; nil means that nobody wants to know
}

const defaultWait = time.Second

// How long an empty list is doubted.
const (
	AfterChange    = 5 * time.Second  // if the source says that the list has changed
	AfterReconnect = 30 * time.Second // if the source was silent before
)

// List is the list of one service for one watch. Its methods may be called from any goroutine.
type List struct {
	opt     Options
	service string
	notify  func(*registry.Snapshot)

	closed atomic.Bool
	count  *registry.Count

	mu      sync.Mutex
	cached  *registry.Record    // of the cache; nil means none, or that the source was heard
	last    *registry.Snapshot  // the last that was delivered; nil means none
	live    []registry.Endpoint // the last list of the source
	doubted time.Time           // when an empty list is believed; zero if none is doubted
	held    int                 // endpoints of the next list that the source does not have, as SetHeld says
}

// Watch returns the List of a service. Its snapshots go to notify, as registry.Watcher says. The caller must close the
// List.
func (o Options) Watch(service string, notify func(*registry.Snapshot)) *List {
	o.Wait = cmp.Or(o.Wait, defaultWait)
	l := &List{opt: o, service: service, notify: notify, count: registry.NewCount(o.Tally)}
	if rec, ok := o.Cache.Load(service); ok && rec.Origin == o.Origin {
		l.cached = &rec
		time.AfterFunc(o.Wait, l.waitNoLonger)
	}
	return l
}

// waitNoLonger uses the cached endpoints, unless the source was heard meanwhile.
func (l *List) waitNoLonger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.useCached()
}

// useCached delivers the cached endpoints, if they may be used and are not in use.
func (l *List) useCached() {
	if rec := l.cached; rec != nil && l.last == nil {
		l.deliver(registry.NewSnapshot(l.service, registry.SourceCache, rec.Changed, rec.Endpoints))
	}
}

// Cached returns the endpoints that the cache has for a start. It returns none after Set. The caller must not change them.
func (l *List) Cached() []registry.Endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cached == nil {
		return nil
	}
	return l.cached.Endpoints
}

// SetHeld is called by the source before Set, if it holds endpoints by a rule of its own: endpoints is how many of the list it does not
// have.
func (l *List) SetHeld(endpoints int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = endpoints
}

// Set is called by the source with the whole list of the service, which Set keeps: nobody may change the list afterwards. doubt is
// how long the list is doubted if it is empty.
func (l *List) Set(endpoints []registry.Endpoint, doubt time.Duration) {
	endpoints = registry.Normalize(endpoints)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(endpoints) == 0 && l.cached != nil && len(l.cached.Endpoints) > 0 {
		l.useCached()
	}
	l.live, l.cached = endpoints, nil
	switch {
	case len(endpoints) > 0 || l.last == nil || len(l.last.Endpoints) == 0:
		l.believe()
	case l.doubted.IsZero():
		l.doubted = time.Now().Add(doubt)
		l.count.Doubt(len(l.last.Endpoints))
		time.AfterFunc(doubt, l.endDoubt)
	}
}

// endDoubt believes an empty list, unless another list came meanwhile.
func (l *List) endDoubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.doubted.IsZero() && !time.Now().Before(l.doubted) {
		l.believe()
	}
}

// believe delivers the list of the source, if it differs from the last snapshot.
func (l *List) believe() {
	l.doubted = time.Time{}
	l.count.Doubt(l.held)
	if l.closed.Load() {
		return
	}
	changed := time.Now()
	if l.last != nil && slices.Equal(l.last.Endpoints, l.live) {
		if l.last.Source == registry.SourceLive {
			return
		}
		changed = l.last.Changed // the same endpoints, now confirmed
	}
	l.deliver(registry.NewSnapshot(l.service, registry.SourceLive, changed, l.live))
	l.opt.Cache.Store(registry.Record{Service: l.service, Origin: l.opt.Origin, Changed: changed, Endpoints: l.live})
}

func (l *List) deliver(s *registry.Snapshot) {
	if !l.closed.Load() {
		l.last = s
		l.notify(s)
	}
}

// SetUnusable is called by the source with the number of the service's records that can't be used.
func (l *List) SetUnusable(records int) { l.count.SetUnusable(records) }

// Service returns the name of the service.
func (l *List) Service() string { return l.service }

// Close ends the watch. It does not wait for a notify that runs, and nothing is cached afterwards.
func (l *List) Close() {
	l.closed.Store(true)
	l.count.End()
}

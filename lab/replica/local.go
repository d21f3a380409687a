package replica

import (
	"sync"

	"github.com/remora-proxy/remora/lab/feature"
)

// local is the cache of a replica with a store behind it. It expires whole at the start of each
// minute: the first request of a minute drops it. Requests that miss a key at the same time all ask
// the store. A full cache drops the oldest batches.
type local struct {
	kind  CacheKind
	limit int // of batches
	store *feature.Client

	mu            sync.RWMutex
	minute        int64 // of the entries; -1 without one
	table         table
	batches       []feature.Request // those with entries, the oldest first
	lookups, hits int64             // batches
}

func newLocal(o Options) *local {
	return &local{kind: o.CacheKind, limit: o.LocalBatches, store: feature.NewClient(o.Store), minute: -1, table: newTable(o.CacheKind)}
}

// reset drops the entries and the counts.
func (l *local) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(-1)
	l.lookups, l.hits = 0, 0
}

// get looks for the keys of r, and asks the store for those that are missing.
func (l *local) get(r *feature.Request) error {
	l.expire(r.Minute)
	missing := l.missing(r)
	l.count(missing == 0)
	if missing == 0 {
		return nil
	}
	if err := l.store.Get(r, missing); err != nil {
		return err
	}
	l.keep(r)
	return nil
}

func (l *local) expire(minute int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minute > l.minute {
		l.drop(minute)
	}
}

// drop drops all entries. The caller holds the lock.
func (l *local) drop(minute int64) {
	l.minute, l.table, l.batches = minute, newTable(l.kind), nil
}

func (l *local) missing(r *feature.Request) (n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var key []byte
	for i := range r.Keys() {
		if key = r.AppendKey(key[:0], i); !l.table.has(key) {
			n++
		}
	}
	return n
}

func (l *local) count(hit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookups++
	if hit {
		l.hits++
	}
}

// keep adds the keys of r, unless its minute is over by now.
func (l *local) keep(r *feature.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Minute != l.minute || l.table.has(r.AppendKey(nil, 0)) {
		return
	}
	var key []byte
	each := func(r *feature.Request, do func(key []byte)) {
		for i := range r.Keys() {
			key = r.AppendKey(key[:0], i)
			do(key)
		}
	}
	if len(l.batches) == l.limit {
		each(&l.batches[0], l.table.remove)
		l.batches = l.batches[1:]
	}
	each(r, l.table.add)
	l.batches = append(l.batches, *r)
}

func (l *local) addStats(s *Stats) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s.Lookups, s.Hits, s.Entries = l.lookups, l.hits, l.table.len()
}

package replica

import (
	"sync"

	"github.com/remora-proxy/remora/lab/feature"
)

// local is the cache of a replica with a store behind it. It expires whole at the start of each
// minute: the first request of a minute drops it. Requests that miss a key at the same time all ask
// the store.
type local struct {
	kind  CacheKind
	limit int // of entries; further ones are not kept
	store *feature.Client

	mu            sync.RWMutex
	minute        int64 // of the entries; -1 without one
	table         table
	lookups, hits int64 // keys
}

func newLocal(o Options) *local {
	return &local{kind: o.CacheKind, limit: o.CacheEntries, store: feature.NewClient(o.Store), minute: -1, table: newTable(o.CacheKind)}
}

// reset drops the entries and the counts.
func (l *local) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.minute, l.table, l.lookups, l.hits = -1, newTable(l.kind), 0, 0
}

// get looks for the keys of r, and asks the store for those that are missing.
func (l *local) get(r *feature.Request) error {
	l.expire(r.Minute)
	missing := l.missing(r)
	l.count(r.Keys, r.Keys-missing)
	if missing == 0 {
		return nil
	}
	if err := l.store.Get(r, missing); err != nil {
		return err
	}
	for i := 0; i < r.Keys; i += fillBatch {
		l.fill(r, i, min(i+fillBatch, r.Keys))
	}
	return nil
}

func (l *local) expire(minute int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minute > l.minute {
		l.minute, l.table = minute, newTable(l.kind)
	}
}

func (l *local) missing(r *feature.Request) (n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var key []byte
	for i := range r.Keys {
		if key = r.AppendKey(key[:0], i); !l.table.has(key) {
			n++
		}
	}
	return n
}

func (l *local) count(lookups, hits int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookups += int64(lookups)
	l.hits += int64(hits)
}

// fill adds the keys from..until of r, unless its minute is over by now.
func (l *local) fill(r *feature.Request, from, until int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var key []byte
	for i := from; i < until && r.Minute == l.minute && l.table.len() < l.limit; i++ {
		if key = r.AppendKey(key[:0], i); !l.table.has(key) {
			l.table.add(key)
		}
	}
}

func (l *local) addStats(s *Stats) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s.Lookups, s.Hits, s.Entries = l.lookups, l.hits, l.table.len()
}

package fair

import (
	"sync"

	"github.com/remora-proxy/remora/proxy/fair/share"
)

// Table is a bounded number of places. When all are taken, a newcomer takes the oldest place of the
// source that has too many, see share.Counts. If no source has too many, the newcomer takes the oldest idle
// place of another peer that has no fewer places than the newcomer's peer. The age of the place counts, not
// the time since the place became idle: otherwise a peer that sends a byte now and then would keep its place
// from all others. Any goroutine may call its methods.
type Table struct {
	// Turnover gives a place to every newcomer: a newcomer that would be refused takes the oldest place of
	// the largest source of its own peer, or of the largest peer if its own has no place. Turnover is for
	// places that an honest peer leaves at once.
	Turnover bool

	mu     sync.Mutex
	max    int
	taken  int
	places share.Counts
	rings  map[share.Source]*Place // root of the ring of each source's places, by prev and next; the oldest first
	all    Place                   // root of the ring of all places, by older and newer; the oldest first
}

// NewTable returns a Table of max places.
func NewTable(max int) *Table {
	t := &Table{max: max, rings: make(map[share.Source]*Place)}
	t.all.older, t.all.newer = &t.all, &t.all
	return t
}

// Resize sets the number of places. Those above it stay taken until their holders leave.
func (t *Table) Resize(max int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.max = max
}

// Place is one place in a Table. Its holder must Release it.
type Place struct {
	table  *Table
	source share.Source
	evict  func()

	// Table.mu guards these.
	idle         bool
	prev, next   *Place // ring of the source; nil when the place is free again
	older, newer *Place // ring of the table
}

// Take gives a place to a newcomer from the source, or returns nil if none is left for the newcomer.
// evict is called at most once, when another newcomer takes the place, on the goroutine of that Take. evict
// must not block.
func (t *Table) Take(source share.Source, evict func()) *Place {
	p, victim := t.take(source, evict)
	if victim != nil {
		victim.evict()
	}
	return p
}

func (t *Table) take(source share.Source, evict func()) (p, victim *Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken >= t.max {
		if victim = t.oldestFor(source); victim == nil {
			victim = t.idleFor(source)
		}
		if victim == nil {
			return nil, nil
		}
		victim.vacate()
	}
	ring := t.rings[source]
	if ring == nil {
		ring = new(Place)
		ring.prev, ring.next = ring, ring
		t.rings[source] = ring
	}
	t.places.Add(source)
	t.taken++
	p = &Place{table: t, source: source, evict: evict, prev: ring.prev, next: ring}
	p.prev.next, p.next.prev = p, p
	p.older, p.newer = t.all.older, &t.all
	p.older.newer, p.newer.older = p, p
	return p, victim
}

// oldestFor returns the place that a newcomer from the source may take, or nil.
func (t *Table) oldestFor(source share.Source) *Place {
	from, ok := t.places.Excess(source)
	if !ok && t.Turnover {
		from, ok = t.places.Largest(source)
	}
	if !ok {
		return nil
	}
	return t.rings[from].next
}

// idleFor returns the idle place that a newcomer from the source may take, or nil.
func (t *Table) idleFor(source share.Source) *Place {
	own := t.places.Of(source.Peer)
	for p := t.all.newer; p != &t.all; p = p.newer {
		if other := p.source.Peer; p.idle && other != source.Peer && t.places.Of(other) >= own {
			return p
		}
	}
	return nil
}

// SetIdle says whether the holder waits for its peer, and so may have to give way sooner.
func (p *Place) SetIdle(idle bool) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.idle = idle
}

// Release gives the place back. It may be called again, and on a nil Place.
func (p *Place) Release() {
	if p == nil {
		return
	}
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.vacate()
}

// vacate frees the place. The caller has locked the table.
func (p *Place) vacate() {
	if p.next == nil {
		return
	}
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
	p.older.newer, p.newer.older = p.newer, p.older
	p.older, p.newer = nil, nil
	t := p.table
	t.taken--
	t.places.Remove(p.source)
	if ring := t.rings[p.source]; ring.next == ring {
		delete(t.rings, p.source)
	}
}

// Idle returns the number of places that are idle. It looks at each.
func (t *Table) Idle() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := t.all.newer; p != &t.all; p = p.newer {
		if p.idle {
			n++
		}
	}
	return n
}

// Taken returns the number of places that are taken.
func (t *Table) Taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// Max returns the number of places.
func (t *Table) Max() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.max
}

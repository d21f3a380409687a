package registry

import "sync"

// Tally adds up what the watches of a source have found. The zero value is empty. Its methods may be called from any
// goroutine.
type Tally struct {
	mu    sync.Mutex
	total found
}

// found is what watches have found.
type found struct{ doubted, kept, unusable int }

func (f *found) add(o found, sign int) {
	f.doubted += sign * o.doubted
	f.kept += sign * o.kept
	f.unusable += sign * o.unusable
}

// Add adds the Tally to a condition.
func (t *Tally) Add(to *Condition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to.Doubted += t.total.doubted
	to.Kept += t.total.kept
	to.Unusable += t.total.unusable
}

// Count is what one watch adds to a Tally. Its methods may be called from any goroutine. Without a Tally, and after End,
// they do nothing.
type Count struct {
	of    *Tally
	now   found // guarded by of.mu, as is ended
	ended bool
}

// NewCount returns a Count that adds nothing yet. The caller must End it. of may be nil.
func NewCount(of *Tally) *Count { return &Count{of: of} }

// Doubt sets how many endpoints stay in use although the source does not have them. 0 means that the watch doubts
// nothing.
func (c *Count) Doubt(endpoints int) {
	c.set(func(now *found) { now.doubted, now.kept = min(endpoints, 1), endpoints })
}

// SetUnusable sets how many records of the service can't be used.
func (c *Count) SetUnusable(records int) { c.set(func(now *found) { now.unusable = records }) }

// End removes what the watch has added, for good.
func (c *Count) End() {
	c.set(func(now *found) { *now, c.ended = found{}, true })
}

func (c *Count) set(change func(now *found)) {
	if c.of == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.ended {
		return
	}
	c.of.total.add(c.now, -1)
	change(&c.now)
	c.of.total.add(c.now, 1)
}

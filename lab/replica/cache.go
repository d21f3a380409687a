package replica

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// cache has many small objects that point at each other, like the local cache of the feature
// service that this lab imitates. It is dropped and filled again at intervals. The garbage
// collector, and allocations that must assist it, then slow requests down: nothing is simulated.
type cache struct {
	entries int
	every   time.Duration
	refills atomic.Int64

	mu    sync.RWMutex
	table map[string]*entry
}

type entry struct {
	key      string
	features []*feature
	next     *entry // the entry filled before it
}

type feature struct {
	name  *string
	value *float64
}

const (
	featuresPerEntry = 4
	keysPerCall      = 32
)

func (c *cache) run(stop <-chan struct{}) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		c.fill()
		c.refills.Add(1)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// fill drops all entries first, so that requests miss them meanwhile.
func (c *cache) fill() {
	table := make(map[string]*entry)
	c.mu.Lock()
	c.table = table
	c.mu.Unlock()
	const batch = 256 // entries per hold of the lock
	var last *entry
	for i := 0; i < c.entries; i += batch {
		c.mu.Lock()
		for j := i; j < min(i+batch, c.entries); j++ {
			last = newEntry(j, last)
			table[last.key] = last
		}
		c.mu.Unlock()
	}
}

func newEntry(i int, next *entry) *entry {
	e := &entry{key: cacheKey(i), next: next}
	for range featuresPerEntry {
		name, value := e.key+"/f", float64(i)
		e.features = append(e.features, &feature{name: &name, value: &value})
	}
	return e
}

func cacheKey(i int) string { return "feature:geo:" + strconv.Itoa(i) }

// lookUp is the work of a request: it reads keys, and allocates missing entries.
func (c *cache) lookUp() {
	for range keysPerCall {
		i := rand.IntN(c.entries)
		key := cacheKey(i)
		c.mu.RLock()
		e := c.table[key]
		c.mu.RUnlock()
		if e == nil {
			newEntry(i, nil)
		}
	}
}

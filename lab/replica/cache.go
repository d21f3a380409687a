package replica

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// cache has many small objects that point at each other, like the local cache of the feature
// service that this lab imitates. It is dropped and filled again at random moments. The garbage
// collector, and allocations that must assist it, then slow requests down: nothing is simulated.
// With FlatCache the collector has nothing to follow.
type cache struct {
	kind    CacheKind
	entries int
	every   time.Duration // on average
	rng     *rand.Rand    // of run
	refills atomic.Int64

	mu    sync.RWMutex
	table table
}

const keysPerCall = 32

func (c *cache) run(stop <-chan struct{}) {
	for {
		c.fill()
		c.refills.Add(1)
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(c.rng.ExpFloat64() * float64(c.every))):
		}
	}
}

// fillBatch is how many entries are filled per hold of a lock.
const fillBatch = 256

// fill drops all entries first, so that requests miss them meanwhile.
func (c *cache) fill() {
	table := newTable(c.kind)
	c.mu.Lock()
	c.table = table
	c.mu.Unlock()
	for i := 0; i < c.entries; i += fillBatch {
		c.mu.Lock()
		for j := i; j < min(i+fillBatch, c.entries); j++ {
			table.add([]byte(cacheKey(j)))
		}
		c.mu.Unlock()
	}
}

func cacheKey(i int) string { return "feature:geo:" + strconv.Itoa(i) }

// lookUp is the work of a request: it reads keys, and allocates missing entries.
func (c *cache) lookUp() {
	for range keysPerCall {
		key := []byte(cacheKey(rand.IntN(c.entries)))
		c.mu.RLock()
		found := c.table != nil && c.table.has(key)
		c.mu.RUnlock()
		if !found {
			newTable(c.kind).add(key)
		}
	}
}

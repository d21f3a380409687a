package replica

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/wire"
)

func startStore(t *testing.T) *feature.Store {
	t.Helper()
	s, err := feature.StartStore(feature.StoreOptions{Median: time.Microsecond, Workers: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestLocalCache asks for batches whose keys are in the cache, or were dropped from it.
func TestLocalCache(t *testing.T) {
	for _, kind := range CacheKinds {
		store := startStore(t)
		o, err := Options{Mode: Expiry, Median: time.Microsecond, Store: store.Addr(), CacheKind: kind, LocalBatches: 2}.withDefaults(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s := newService(o)
		s.local.store.Timeout = testTimeout
		r := startService(t, s)
		c, br := dial(t, r)
		asked, entries := int64(0), map[int]int{}
		for i, step := range []struct {
			grid   int
			minute int64
			miss   bool
		}{
			{1, 5, true}, {1, 5, false}, {2, 5, true}, {1, 5, false}, {2, 5, false},
			{3, 5, true}, {2, 5, false}, {1, 5, true}, // 1 was the oldest
			{1, 6, true}, {2, 5, true}, {1, 6, false}, // the minute is over: nothing is kept for it
		} {
			req := feature.Request{Feature: "speed", Grid: step.grid, Minute: step.minute}
			entries[step.grid] = req.Keys()
			fmt.Fprintf(c, "GET /compute HTTP/1.1\r\nhost: x\r\nx-key: %s\r\n\r\n", req.Key())
			if resp, body := answer(t, br, "GET"); resp.StatusCode != 200 || len(body) != bodySize {
				t.Fatalf("%s: status %d: %s", kind, resp.StatusCode, body)
			}
			if step.miss {
				asked++
			}
			if got := store.Stats().Requests; got != asked {
				t.Errorf("%s: step %d: the store was asked %d times, want %d", kind, i, got, asked)
			}
		}
		if s := r.Stats(); s.Lookups != 11 || s.Hits != 11-asked || s.Entries != entries[1] {
			t.Errorf("%s: %+v, want %d hits, and the %d entries of one batch", kind, s, 11-asked, entries[1])
		}
		if err := Reset(t.Context(), r.Addr(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Lookups != 0 || s.Hits != 0 || s.Entries != 0 {
			t.Errorf("%s: after a reset: %+v", kind, s)
		}
	}
}

func TestLocalCacheWithoutStore(t *testing.T) {
	r := start(t, Options{Mode: Expiry, Store: "127.0.0.1:1"}, nil)
	c, br := dial(t, r)
	for key, want := range map[string]int{"speed/g1/m1": 503, "speed": 400, "": 400} {
		fmt.Fprintf(c, "POST /compute HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nx-key: %s\r\n\r\n", key)
		if resp, body := answer(t, br, "POST"); resp.StatusCode != want || resp.Header.Get("content-type") != "text/plain" {
			t.Errorf("%q: status %d, want %d: %s", key, resp.StatusCode, want, body)
		}
	}
	b, err := child.Call(t.Context(), http.MethodGet, "http://"+r.Addr()+"/stats")
	var s Stats
	if err != nil || json.Unmarshal(b, &s) != nil || s.Served != 3 || s.Lookups != 1 || s.Hits != 0 {
		t.Errorf("%v: %s", err, b)
	}
}

// TestUnequalRequests: the size of a batch decides, each time.
func TestUnequalRequests(t *testing.T) {
	store := startStore(t)
	for _, mode := range []Mode{Expiry, Unequal} {
		clock := newFakeClock()
		o, err := Options{Mode: mode, Store: store.Addr()}.withDefaults(clock.now())
		if err != nil {
			t.Fatal(err)
		}
		var until time.Time
		s := newService(o)
		s.local.store.Timeout = testTimeout
		s.now, s.sleepUntil = clock.now, func(t time.Time) { until = t }
		for grid := range feature.Grids {
			r := feature.Request{Feature: "speed", Grid: grid}
			want := o.Median + perKey*time.Duration(r.Keys())
			if mode == Unequal && r.Keys() > heavyKeys {
				want += 10 * o.Median
			}
			if status, err := s.compute(&wire.Message{Key: []byte(r.Key())}); status != 200 || err != nil {
				t.Fatal(status, err)
			}
			if got := until.Sub(clock.now()); got != want {
				t.Errorf("mode %s: %d keys take %v, want %v", mode, r.Keys(), got, want)
			}
		}
		s.local.store.Close()
	}
}

// TestFrozenReplicaAsksNoStore serves a request that comes in the midst of a freeze.
func TestFrozenReplicaAsksNoStore(t *testing.T) {
	store := startStore(t)
	epoch, freeze := time.Unix(1000, 0), first(7, 1)[0]
	o, err := Options{Mode: Stall, Seed: 7, StallMean: mean, StallLen: long, Store: store.Addr(), Epoch: epoch}.withDefaults(epoch)
	if err != nil {
		t.Fatal(err)
	}
	s := newService(o)
	s.local.store.Timeout = testTimeout
	defer s.local.store.Close()
	now := epoch.Add(freeze.Start + msec)
	var asked []int64
	s.now = func() time.Time { return now }
	s.sleepUntil = func(until time.Time) {
		now = until
		asked = append(asked, store.Stats().Requests)
	}
	if status, err := s.compute(&wire.Message{Key: []byte("speed/g1/m1")}); status != 200 {
		t.Fatal(status, err)
	}
	if thaw := epoch.Add(freeze.End); len(asked) != 2 || asked[0] != 0 || asked[1] != 1 || !now.After(thaw) {
		t.Errorf("requests to the store at each sleep: %v; done %v after the freeze", asked, now.Sub(thaw))
	}
}

// TestTables counts what the garbage collector has to follow.
func TestTables(t *testing.T) {
	const n = 10_000
	var keys [][]byte
	for i := range n {
		keys = append(keys, []byte(cacheKey(i)))
	}
	for kind, objects := range map[CacheKind][2]float64{PointerCache: {13 * n, 22 * n}, FlatCache: {0, n / 5}} {
		var all table
		got := testing.AllocsPerRun(1, func() {
			all = newTable(kind)
			for _, key := range keys {
				all.add(key)
			}
		})
		if got < objects[0] || got > objects[1] {
			t.Errorf("%s: %v allocations for %d entries, want %v to %v", kind, got, n, objects[0], objects[1])
		}
		for _, key := range keys[:n-1] {
			all.remove(key)
		}
		all.remove([]byte("nothing"))
		if all.len() != 1 || !all.has(keys[n-1]) || all.has(keys[0]) {
			t.Errorf("%s: %d entries are left", kind, all.len())
		}
		if p, ok := all.(*pointerTable); ok && p.last.next.next != nil {
			t.Error("removed entries are still linked")
		}
	}
}

// TestFlatCacheRefill is TestCacheRefill without pointers.
func TestFlatCacheRefill(t *testing.T) {
	r := start(t, Options{Mode: GC, StallMean: msec, CacheEntries: 2000, CacheKind: FlatCache}, nil)
	eventually.True(t, "the cache is refilled", func() bool { return r.Stats().Stalls >= 3 })
	c := r.service.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	if _, flat := c.table.(*flatTable); !flat {
		t.Errorf("a table of kind %T", c.table)
	}
}

func TestOptionsOfStores(t *testing.T) {
	for want, o := range map[string]Options{
		"unknown kind of cache":       {CacheKind: "round"},
		"expiry and bimodal need":     {Mode: Expiry},
		"mode bimodal, protocol http": {Mode: Unequal},
		"protocol dubbo":              {Protocol: Dubbo, Store: "127.0.0.1:1"},
		"must not be negative":        {LocalBatches: -1},
		"share of stragglers":         {Stragglers: 1.01},
	} {
		if r, err := Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				r.Close(t.Context())
			}
		}
	}
}

package limit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// count returns how many of n requests of a key pass at once.
func count(l *Keyed, now time.Duration, key string, n int) (passed int) {
	for range n {
		if l.Take(now, []byte(key)) {
			passed++
		}
	}
	return passed
}

// TestKeyed: each key has a bucket of its own; without a key there is one.
func TestKeyed(t *testing.T) {
	for key, want := range map[string][2]int{"": {3, 0}, "peer": {3, 3}, "path": {3, 3}, "header X-User": {3, 3}} {
		l := NewKeyed(&config.RateLimit{Rate: 1, Burst: 3, Key: key})
		if got := [2]int{count(l, time.Hour, "a", 5), count(l, time.Hour, "b", 5)}; got != want {
			t.Errorf("key %q: %v requests of two keys passed, want %v", key, got, want)
		}
		if got := count(l, time.Hour+time.Second, "a", 5); got != 1 {
			t.Errorf("key %q: %d requests passed a second later, want 1", key, got)
		}
	}
	if l := NewKeyed(&config.RateLimit{Rate: 1, Key: "header X-User"}); l.By != ByHeader || l.Header != "x-user" {
		t.Errorf("%+v", l)
	}
}

// TestKeyedRate: any key gets what a limit of its own would give, whatever others do, while the
// table has room.
func TestKeyedRate(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	c := config.RateLimit{Rate: 10, Burst: 4, Key: "peer"}
	l, own := NewKeyed(&c), map[string]*Rate{}
	now := time.Hour
	for range 100_000 {
		now += time.Duration(rnd.IntN(int(2 * time.Millisecond)))
		key := fmt.Sprint(rnd.IntN(100))
		if own[key] == nil {
			own[key] = NewRate(&c)
		}
		if got, want := l.Take(now, []byte(key)), own[key].Take(now); got != want {
			t.Fatalf("key %s at %v: %t, want %t", key, now, got, want)
		}
	}
}

// TestKeyedBound: many more keys than there is room for leave the table at its size. A key that
// is above its rate stays limited, and none of the others is refused.
func TestKeyedBound(t *testing.T) {
	l := NewKeyed(&config.RateLimit{Rate: 1, Burst: 100, Key: "peer"})
	now := time.Hour
	if got := count(l, now, "busy", 200); got != 100 {
		t.Fatalf("%d requests passed, want 100", got)
	}
	for i := range 3 * maxKeys {
		if !l.Take(now, fmt.Append(nil, "key ", i)) {
			t.Fatalf("key %d was refused at its first request", i)
		}
	}
	if l.Take(now, []byte("busy")) {
		t.Error("other keys have given a busy one its tokens back")
	}
	buckets := 0
	for i := range l.sets {
		for j := range l.sets[i] {
			if l.sets[i][j].Load() != nil {
				buckets++
			}
		}
	}
	if buckets > maxKeys || buckets < maxKeys*9/10 {
		t.Errorf("%d buckets, want nearly %d", buckets, maxKeys)
	}
}

// TestKeyedEviction: of a set, a free place is taken first, then the full bucket that was used
// first, then the one that is full first.
func TestKeyedEviction(t *testing.T) {
	l := NewKeyed(&config.RateLimit{Rate: 1, Burst: 10, Key: "peer"})
	set := hash([]byte("first")) % sets
	same := []string{"first"}
	for i := 0; len(same) < ways+3; i++ {
		if key := fmt.Sprint(i); hash([]byte(key))%sets == set {
			same = append(same, key)
		}
	}
	has := func(key string) bool { return l.sets[set].lookup([]byte(key)) != nil }
	now := time.Hour
	for i, key := range same[:ways] {
		count(l, now+time.Duration(i)*time.Minute, key, 1)
	}
	now += time.Hour // all are full
	count(l, now, same[1], 5)
	count(l, now, same[ways], 1)
	if has(same[0]) || !has(same[1]) || !has(same[2]) {
		t.Error("the full bucket that was used first has not given way")
	}
	for _, key := range same[2:ways] {
		count(l, now, key, 3)
	}
	count(l, now, same[ways], 1) // two seconds until it is full, the others three and five
	count(l, now, same[ways+1], 1)
	if has(same[ways]) || !has(same[1]) {
		t.Error("of buckets that are not full, the fullest has not given way")
	}
}

// TestKeyedLongKeys: keys are told apart by their first bytes.
func TestKeyedLongKeys(t *testing.T) {
	l := NewKeyed(&config.RateLimit{Rate: 1, Burst: 1, Key: "path"})
	long := make([]byte, maxKey+1)
	if !l.Take(time.Hour, long) || l.Take(time.Hour, long[:maxKey]) {
		t.Error("a byte past the bound made a difference")
	}
	if !l.Take(time.Hour, long[:maxKey-1]) || !l.Take(time.Hour, nil) {
		t.Error("shorter keys were taken for the long one")
	}
}

// TestKeyedOverLoops: loops that take tokens of one key concurrently get those that there are.
func TestKeyedOverLoops(t *testing.T) {
	for range 50 {
		l := NewKeyed(&config.RateLimit{Rate: 1000, Burst: 100, Key: "peer"})
		var passed atomic.Int32
		var loops sync.WaitGroup
		for range 4 {
			loops.Go(func() { passed.Add(int32(count(l, time.Hour, "a", 1000))) })
		}
		loops.Wait()
		// A loop may lose what it took from a bucket that another made in vain.
		if n := passed.Load(); n < 100 || n > 104 {
			t.Errorf("%d requests passed, want 100", n)
		}
	}
}

// TestKeyedNeighboursOverLoops: loops that make buckets of one set at the same time keep all of them.
func TestKeyedNeighboursOverLoops(t *testing.T) {
	l := NewKeyed(&config.RateLimit{Rate: 1, Burst: 1, Key: "peer"})
	neighbours := make([][]string, sets)
	for i := range 4 * sets {
		key := fmt.Sprint(i)
		set := hash([]byte(key)) % sets
		neighbours[set] = append(neighbours[set], key)
	}
	for _, keys := range neighbours {
		keys = keys[:min(len(keys), ways)]
		var loops sync.WaitGroup
		for _, key := range keys {
			loops.Go(func() { l.Take(time.Hour, []byte(key)) })
		}
		loops.Wait()
		for _, key := range keys {
			if l.Take(time.Hour, []byte(key)) {
				t.Errorf("key %s has got two tokens", key)
			}
		}
	}
}

// TestKeyedAllocations: a known key costs no allocation.
func TestKeyedAllocations(t *testing.T) {
	l := NewKeyed(&config.RateLimit{Rate: 1, Key: "peer"})
	key := []byte("10.0.0.1")
	if n := testing.AllocsPerRun(100, func() { l.Take(time.Hour, key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

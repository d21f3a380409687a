package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

const never = time.Duration(1 << 62)

func hashOf(key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return h ^ h>>29
}

func (s *Store) put(now time.Duration, key, value string, until time.Duration) bool {
	half := len(value) / 2
	return s.Put(now, hashOf(key), []byte(key), &Meta{Until: until}, []byte(value[:half]), []byte(value[half:]))
}

func (s *Store) get(key string) (string, bool) {
	e := s.Find(hashOf(key), []byte(key))
	if e == nil {
		return "", false
	}
	s.Use(e)
	return string(s.Append(nil, e)), true
}

// check checks that the rings hold what the index says.
func (s *Store) check(t *testing.T, bound int) {
	t.Helper()
	live, listed := 0, 0
	for _, r := range []*ring{&s.small, &s.main} {
		used, at := 0, r.head-r.used
		if at < 0 {
			at += r.room
		}
		for i := r.first; i != none; i = s.entry(i).next {
			e := s.entry(i)
			if e.at != at || e.main != (r == &s.main) {
				t.Fatalf("entry at %d in main %t, want at %d", e.at, e.main, at)
			}
			at = r.after(at, e.size)
			used += e.size
			if listed++; !e.dead {
				live++
			}
		}
		if used != r.used || used > r.room {
			t.Fatalf("%d bytes in the list, %d counted, room for %d", used, r.used, r.room)
		}
	}
	free := 0
	for i := s.free; i != 0; i = s.entry(i - 1).next {
		free++
	}
	if live != s.Entries || free+listed != s.made {
		t.Fatalf("%d live of %d, %d free and %d listed of %d", live, s.Entries, free, listed, s.made)
	}
	if s.Bytes() > bound {
		t.Fatalf("%d bytes, at most %d", s.Bytes(), bound)
	}
}

// TestStoreAgainstMap: what the store returns was put last under that key, whatever sizes come and
// whatever is removed, and its memory stays within the bound.
func TestStoreAgainstMap(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		bound := 200<<10 + rnd.IntN(400<<10)
		s, want, now := New(bound), map[string]string{}, time.Duration(0)
		longest := []int{50, 500, 5000, 100_000}[rnd.IntN(4)]
		for range 4000 {
			now++
			key := fmt.Sprint("key ", int(rnd.ExpFloat64()*300))
			switch got, ok := s.get(key); {
			case ok && got != want[key]:
				t.Fatalf("seed %d: %q has the wrong value", seed, key)
			case ok && rnd.IntN(20) == 0:
				s.Remove(s.Find(hashOf(key), []byte(key)))
				delete(want, key)
			case rnd.IntN(3) > 0 && ok:
			default:
				value := string(bytes.Repeat([]byte{byte(rnd.Uint32())}, rnd.IntN(longest)))
				if s.put(now, key, value, now+time.Duration(rnd.IntN(2000))) {
					want[key] = value
				} else if len(key)+len(value) <= s.MaxEntry() {
					t.Fatalf("seed %d: %d bytes refused", seed, len(value))
				} else if _, ok := s.get(key); ok {
					t.Fatal("the old value stayed")
				}
			}
		}
		s.check(t, bound)
	}
}

// TestScan: keys that come once do not evict those that are used again and again.
func TestScan(t *testing.T) {
	s, value := New(1<<20), string(make([]byte, 1000))
	for i := range 200 {
		key := fmt.Sprint("used ", i)
		s.put(0, key, value, never)
		for range 2 {
			s.get(key)
		}
	}
	kept := 0
	for i := range 20_000 {
		s.put(0, fmt.Sprint("once ", i), value, never)
		s.get(fmt.Sprint("used ", i%200))
	}
	for i := range 200 {
		if _, ok := s.get(fmt.Sprint("used ", i)); ok {
			kept++
		}
	}
	if kept < 190 || s.Evicted == 0 {
		t.Errorf("%d of 200 used keys are left, %d evicted", kept, s.Evicted)
	}
}

// TestSameHash: keys with the same hash have entries of their own.
func TestSameHash(t *testing.T) {
	const hash = 7
	s := New(1 << 20)
	keys := []string{"a", "b", "cc", "dd", "ee"}
	for _, key := range keys {
		s.Put(0, hash, []byte(key), &Meta{Until: never}, []byte("value of "+key))
	}
	for i, gone := range append([]string{"none"}, keys...) {
		if i > 0 {
			s.Remove(s.Find(hash, []byte(gone)))
		}
		for j, key := range keys {
			e := s.Find(hash, []byte(key))
			if (e != nil) != (j >= i) || e != nil && (string(s.Append(nil, e)) != "value of "+key || e.Hash() != hash || e.Size() != len("value of "+key)) {
				t.Errorf("without %d: %s is there: %t", i, key, e != nil)
			}
		}
		if e := s.Find(hash, []byte("ff")); e != nil {
			t.Errorf("without %d: a key is there that never came", i)
		}
	}
}

// TestExactFit: entries that fill a ring to the last byte fit. One may have a sixth of the memory.
func TestExactFit(t *testing.T) {
	const bytes = 1 << 20
	s := New(bytes)
	const n = 5
	for i := range n {
		size := s.small.room / n
		if i == 0 {
			size = s.small.room - (n-1)*size
		}
		s.Put(0, uint64(i), []byte{byte(i)}, &Meta{Until: never}, make([]byte, size-1))
	}
	if s.Entries != n || s.Evicted != 0 || s.small.used != s.small.room {
		t.Errorf("%d entries, %d evicted, %d of %d bytes used", s.Entries, s.Evicted, s.small.used, s.small.room)
	}
	if all := s.small.room + s.main.room + s.maxEntries*int(unsafe.Sizeof(Entry{})) + 2*4*tableLen(s.maxEntries); all != bytes {
		t.Errorf("%d of %d bytes can be used", all, bytes)
	}
	if most := s.MaxEntry(); most < bytes/6 || most > bytes/4 {
		t.Errorf("an entry may have %d of %d bytes", most, bytes)
	}
}

// TestRingOfEntry: an entry of more than a quarter of the small ring goes to the main ring. An entry of more than a quarter of the main
// ring goes to no ring. An entry that takes the place of another goes to the same ring.
func TestRingOfEntry(t *testing.T) {
	s := New(1 << 20)
	quarter := s.small.room / 4
	for _, c := range []struct {
		key        string
		size       int
		there, big bool
	}{
		{"a", 100, true, false}, {"b", quarter, true, false}, {"c", quarter + 1, true, true}, {"d", s.MaxEntry(), true, true},
		{"e", s.MaxEntry() + 1, false, false}, {"c", 100, true, true}, {"a", quarter + 1, true, true}, {"b", 100, true, false},
		{"b", s.MaxEntry() + 1, false, false},
	} {
		taken := s.put(0, c.key, string(make([]byte, c.size-len(c.key))), never)
		e := s.Find(hashOf(c.key), []byte(c.key))
		if taken != c.there || (e != nil) != c.there || e != nil && e.main != c.big {
			t.Errorf("%s of %d bytes: taken %t, %+v", c.key, c.size, taken, e)
		}
	}
}

// TestSizes: how many entries the index has at most, and how large its tables are.
func TestSizes(t *testing.T) {
	for bytes, want := range map[int]int{-1: 64, 0: 64, 700*128 - 1: 64, 700 * 128: 128, 700*192 - 1: 128, 700*192 + 699: 192} {
		if got := MaxEntries(bytes); got != want {
			t.Errorf("of %d bytes: %d entries, want %d", bytes, got, want)
		}
	}
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 64: 64, 65: 128} {
		if got := tableLen(n); got != want {
			t.Errorf("a table for %d entries has %d, want %d", n, got, want)
		}
	}
}

// TestBytesAreWhatIsAllocated: the memory that a store says it holds is what it has allocated.
func TestBytesAreWhatIsAllocated(t *testing.T) {
	const size = 4 << 20
	key, value, large := make([]byte, 8), make([]byte, 100), make([]byte, New(size).small.room/4)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := New(size)
	if s.Bytes() != 0 {
		t.Errorf("%d bytes before the first entry", s.Bytes())
	}
	for i := range uint64(6000) {
		binary.LittleEndian.PutUint64(key, i)
		s.Put(0, i<<32|i, key, &Meta{Until: never}, value)
		if i%50 == 0 { // to the main ring
			s.Put(0, i, key, &Meta{Until: never}, large)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; float64(s.Bytes()) < 0.95*float64(got) || s.Bytes() > int(got) {
		t.Errorf("%d bytes, allocated were %d", s.Bytes(), got)
	}
}

// TestSpared: a Put spares at most maxSpared used entries of the main ring, the oldest. Further ones are evicted.
func TestSpared(t *testing.T) {
	s, value := New(1<<20), make([]byte, 990)
	put := func(key string, size int, uses int) {
		s.Put(0, hashOf(key), []byte(key), &Meta{Until: never}, value[:size])
		for range uses {
			s.get(key)
		}
	}
	n := s.main.room/1000 - 5
	for i := range n { // used in the small ring, from where they come to the main ring
		put(fmt.Sprintf("used %05d", i), 990, promoteUses)
	}
	for i := range 2 * s.small.room / 1000 {
		put(fmt.Sprintf("once %05d", i), 990, 0)
	}
	for i := range n {
		if key := fmt.Sprintf("used %05d", i); !s.Find(hashOf(key), []byte(key)).main {
			t.Fatalf("%s is in the small ring", key)
		}
		s.get(fmt.Sprintf("used %05d", i))
	}
	large := bytes.Repeat([]byte("x"), s.small.room/4+1000)
	s.Put(0, 7, []byte("large"), &Meta{Until: never}, large)
	gone := 0
	for i := range n {
		key := fmt.Sprintf("used %05d", i)
		there := s.Find(hashOf(key), []byte(key)) != nil
		if !there {
			gone++
		}
		if i < maxSpared && !there || i == maxSpared && there {
			t.Errorf("%s is there: %t", key, there)
		}
	}
	if most := len(large)/1000 + 1; gone == 0 || gone > most {
		t.Errorf("%d entries gave way, at most %d had to", gone, most)
	}
}

// TestForgotten: an entry that is no longer used leaves the main ring, however often it was used before.
func TestForgotten(t *testing.T) {
	s, value := New(1<<20), string(make([]byte, 1000))
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint("used ", i))
		s.put(0, keys[i], value, never)
		for range 2 * maxUses {
			s.get(keys[i])
		}
	}
	large := string(make([]byte, s.small.room/4+1000))
	for i := range 2 * s.small.room / len(value) {
		s.put(0, fmt.Sprint("once ", i), value, never)
	}
	for _, key := range keys {
		for range 2 * maxUses {
			s.get(key)
		}
	}
	for i := range (maxUses + 2) * s.main.room / len(large) {
		s.put(0, fmt.Sprint("large ", i), large, never)
		if _, ok := s.get(keys[0]); !ok {
			t.Fatal("an entry that is used all the time is gone")
		}
	}
	for _, key := range keys[1:] {
		if _, ok := s.get(key); ok {
			t.Errorf("%s is there", key)
		}
	}
}

// TestGhost: a key that comes back soon after it was evicted goes to the main ring.
func TestGhost(t *testing.T) {
	for _, key := range []string{"a", "b", "c", "d"} {
		s, value := New(1<<20), string(make([]byte, 1000))
		s.put(0, key, value, never)
		for i := 0; s.Find(hashOf(key), []byte(key)) != nil; i++ {
			s.put(0, fmt.Sprint(i), value, never)
		}
		s.put(0, key, value, never)
		if e := s.Find(hashOf(key), []byte(key)); !e.main {
			t.Errorf("%s is in the small ring", key)
		}
	}
}

// TestUseless: an entry whose time is up is not spared, and does not count as evicted.
func TestUseless(t *testing.T) {
	s, value := New(1<<20), string(make([]byte, 1000))
	s.put(0, "a", value, 5)
	s.get("a")
	s.get("a")
	for i := range 200 {
		s.put(5, fmt.Sprint(i), value, 5)
	}
	if _, ok := s.get("a"); ok || s.Evicted != 0 {
		t.Errorf("it is there: %t; %d evicted", ok, s.Evicted)
	}
}

// TestStoreAllocations: a store whose memory is in use allocates nothing.
func TestStoreAllocations(t *testing.T) {
	s, value := New(512<<10), make([]byte, 900)
	keys := make([][]byte, 2000)
	for i := range keys {
		keys[i] = fmt.Append(nil, "key", i)
	}
	n, dst := 0, make([]byte, 0, 1024)
	step := func() {
		key := keys[n%len(keys)]
		n += 7
		h := hashOf(string(key))
		if e := s.Find(h, key); e != nil {
			s.Use(e)
			dst = s.Append(dst[:0], e)
		}
		s.Put(0, h, key, &Meta{Until: never}, value)
	}
	for range 20_000 {
		step()
	}
	if allocs := testing.AllocsPerRun(1000, step); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzStore runs operations of the input against a map.
func FuzzStore(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 3, 255}, uint16(7))
	f.Fuzz(func(t *testing.T, ops []byte, extra uint16) {
		bound := 192<<10 + int(extra)
		s, want := New(bound), map[string]string{}
		for i, op := range ops {
			key := fmt.Sprint(op % 32)
			if op >= 224 {
				if e := s.Find(hashOf(key), []byte(key)); e != nil {
					s.Remove(e)
				}
				continue
			}
			value := string(bytes.Repeat([]byte{byte(i)}, int(op/32)*(5+i*91)%40_000))
			if s.put(time.Duration(i), key, value, never) {
				want[key] = value
			}
			if got, ok := s.get(key); ok && got != want[key] {
				t.Fatal("wrong value")
			}
		}
		s.check(t, bound)
	})
}

// TestFullIndex: an entry of the main ring that needs a place in the index has room in the ring, too,
// although another one moved there to make the place.
func TestFullIndex(t *testing.T) {
	for seed := range uint64(20) {
		const bound = 200 << 10
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := New(bound)
		for n := range 3000 {
			key, size := fmt.Sprint("key ", rnd.IntN(2000)), rnd.IntN(200)
			if rnd.IntN(3) == 0 {
				size = s.small.room/4 + rnd.IntN(1000)
			}
			s.put(0, key, string(make([]byte, size)), never)
			for range 2 {
				s.get(fmt.Sprint("key ", rnd.IntN(2000)))
				s.get(key)
			}
			if s.main.used > s.main.room {
				t.Fatalf("seed %d, put %d: %d bytes, room for %d", seed, n, s.main.used, s.main.room)
			}
		}
		s.check(t, bound)
	}
}

// TestRingEqual: bytes are compared as a whole across the borders of segments and across the end of the ring.
func TestRingEqual(t *testing.T) {
	const room = segment + 100
	for _, at := range []int{0, segment - 3, room - 3} {
		var r ring
		r.init(room)
		r.head = at
		key := []byte("a longer key")
		r.write(key)
		if !r.equal(at, key) {
			t.Errorf("at %d: not equal", at)
		}
		for i := range key {
			other := bytes.Clone(key)
			other[i]++
			if r.equal(at, other) {
				t.Errorf("at %d: equal in spite of byte %d", at, i)
			}
		}
		if got := r.appendTo(nil, at, len(key)); !bytes.Equal(got, key) {
			t.Errorf("at %d: %q", at, got)
		}
	}
}

// TestRingEnd: bytes go on at the beginning of the ring, also if they are read from its end on. A ring may end one byte after a
// segment.
func TestRingEnd(t *testing.T) {
	for _, room := range []int{segment, segment + 1, segment + 100, 2 * segment} {
		var r, other ring
		r.init(room)
		other.init(room)
		r.head = room - 3
		r.write([]byte("keyvalue"))
		other.copyFrom(&r, room, 5)
		for off, want := range map[int]string{room - 3: "keyvalue", room: "value", room + 2: "lue"} {
			if got := r.appendTo(nil, off, len(want)); string(got) != want || !r.equal(off, []byte(want)) {
				t.Errorf("of %d bytes, from %d on: %q, want %q", room, off, got, want)
			}
		}
		if got := other.appendTo(nil, 0, 5); string(got) != "value" || r.head != 5 || other.head != 5 {
			t.Errorf("of %d bytes: copied are %q", room, got)
		}
	}
}

// TestNoRoom: a store that has less memory than its index takes holds nothing.
func TestNoRoom(t *testing.T) {
	s := New(-200_000)
	if s.put(0, "a", "b", never) || s.Entries != 0 || s.Bytes() != 0 || s.MaxEntry() != 0 {
		t.Errorf("%d entries in %d bytes", s.Entries, s.Bytes())
	}
}

// TestGhostOfOther: a key is no ghost because another one was evicted that has its place in the table, or has been there before.
func TestGhostOfOther(t *testing.T) {
	s, value := New(1<<20), make([]byte, 1000)
	put := func(hash uint64) {
		s.Put(0, hash, binary.LittleEndian.AppendUint64(nil, hash), &Meta{Until: never}, value)
	}
	isMain := func(hash uint64) bool { return s.Find(hash, binary.LittleEndian.AppendUint64(nil, hash)).main }
	const place = 5
	first, other, low := uint64(3<<40|place), uint64(9<<40|place), uint64(place)
	put(first)
	for i := range uint64(200) {
		put(1<<50 | 1000 + i)
	}
	put(other)
	if isMain(other) {
		t.Error("another key is in the main ring")
	}
	put(first)
	put(low)
	if !isMain(first) || isMain(low) {
		t.Errorf("the key that was evicted is in the main ring: %t, one that came first: %t", isMain(first), isMain(low))
	}
}

package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestDefinition compares each operation of a store with S3-FIFO by its definition, in lists of Go, and all entries now and then.
func TestDefinition(t *testing.T) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		bound := 128<<10 + rnd.IntN(300<<10)
		s := New(bound)
		d := definitionOf(s)
		longest := []int{20, 400, 4000, 40_000}[seed]
		now, keys := time.Duration(0), 20+rnd.IntN(1000)
		for n := range 1500 {
			now += time.Duration(rnd.IntN(2))
			key := fmt.Sprint("key ", int(rnd.ExpFloat64()*float64(keys)))
			switch op := rnd.IntN(100); {
			case op < 40:
				value := bytes.Repeat([]byte{byte(n)}, rnd.IntN(longest))
				if rnd.IntN(20) == 0 {
					value = make([]byte, max(0, []int{s.small.room / 4, s.main.room / 4}[rnd.IntN(2)]-len(key)+rnd.IntN(2)))
				}
				until := now + time.Duration(rnd.IntN(3)*rnd.IntN(400))
				if got, want := s.put(now, key, string(value), until), d.put(now, key, string(value), until); got != want {
					t.Fatalf("seed %d, step %d: %s was put: %t, want %t", seed, n, key, got, want)
				}
			case op < 97:
				got, there := s.get(key)
				want := d.find(key)
				if there != (want != nil) || there && got != want.value {
					t.Fatalf("seed %d, step %d: %s is there: %t, with %.20q, want %+.40v", seed, n, key, there, got, want)
				}
				if there {
					want.uses = min(want.uses+1, maxUses)
				}
			case op < 99:
				if e := d.find(key); e != nil {
					s.Remove(s.Find(hashOf(key), []byte(key)))
					e.dead = true
				}
			default: // all are used, so that a large one may spare many
				for range 1 + rnd.IntN(maxUses) {
					for _, e := range slices.Concat(d.small.entries, d.main.entries) {
						if !e.dead {
							s.get(e.key)
							e.uses = min(e.uses+1, maxUses)
						}
					}
				}
				value := string(make([]byte, s.small.room/4-len(key)))
				s.put(now, key, value, never)
				d.put(now, key, value, never)
			}
			if n%10 == 0 {
				d.compare(t, s, fmt.Sprintf("seed %d, step %d", seed, n))
			}
		}
		s.check(t, bound)
	}
}

// definition is a store as the package and the comments of Store describe it.
type definition struct {
	small, main list
	ghosts      map[uint64]uint32 // by place in the table
	tableLen    int
	maxEntries  int
	evicted     uint64
}

type list struct {
	entries    []*kept // oldest first
	room, used int     // bytes
}

type kept struct {
	key, value string
	until      time.Duration
	uses       uint8
	main, dead bool
}

func definitionOf(s *Store) *definition {
	d := &definition{ghosts: map[uint64]uint32{}, maxEntries: s.maxEntries, tableLen: tableLen(s.maxEntries)}
	d.small.room, d.main.room = s.small.room, s.main.room
	return d
}

func (e *kept) size() int { return len(e.key) + len(e.value) }

func (l *list) push(e *kept) {
	l.entries = append(l.entries, e)
	l.used += e.size()
}

func (d *definition) find(key string) *kept {
	for _, l := range []*list{&d.small, &d.main} {
		for _, e := range l.entries {
			if e.key == key && !e.dead {
				return e
			}
		}
	}
	return nil
}

func (d *definition) count() int { return len(d.small.entries) + len(d.main.entries) }

func (d *definition) put(now time.Duration, key, value string, until time.Duration) bool {
	e := &kept{key: key, value: value, until: until}
	e.main = e.size() > d.small.room/4
	if old := d.find(key); old != nil {
		e.main = e.main || old.main
		old.dead = true
	}
	if e.size() > d.main.room/4 {
		return false
	}
	hash := hashOf(key)
	if place := hash % uint64(d.tableLen); d.ghosts[place] == ghostOf(hash) {
		delete(d.ghosts, place)
		e.main = true
	}
	spared := 0
	for d.count() == d.maxEntries {
		from := &d.small
		if len(d.small.entries) == 0 {
			from = &d.main
		}
		d.evict(now, from, &spared)
	}
	to := &d.small
	if e.main {
		to = &d.main
	}
	d.makeRoom(now, to, e.size(), &spared)
	to.push(e)
	return true
}

func (d *definition) makeRoom(now time.Duration, l *list, size int, spared *int) {
	for l.used+size > l.room {
		d.evict(now, l, spared)
	}
}

func (d *definition) evict(now time.Duration, from *list, spared *int) {
	e := from.entries[0]
	from.entries, from.used = from.entries[1:], from.used-e.size()
	uses := e.uses
	if from == &d.small {
		uses /= promoteUses
	}
	switch useful := !e.dead && now < e.until; {
	case useful && *spared < maxSpared && uses > 0:
		*spared++
		if e.uses--; from == &d.small {
			e.uses, e.main = 0, true
			d.makeRoom(now, &d.main, e.size(), spared)
		}
		d.main.push(e)
		return
	case useful:
		d.evicted++
	}
	if !e.dead && from == &d.small {
		hash := hashOf(e.key)
		d.ghosts[hash%uint64(d.tableLen)] = ghostOf(hash)
	}
}

// compare compares what is in a store, and what was evicted.
func (d *definition) compare(t *testing.T, s *Store, at string) {
	t.Helper()
	live := 0
	for _, l := range []*list{&d.small, &d.main} {
		for _, e := range l.entries {
			if e.dead {
				continue
			}
			live++
			got := s.Find(hashOf(e.key), []byte(e.key))
			if got == nil || got.main != e.main || got.uses != e.uses || got.Until != e.until || got.Size() != len(e.value) {
				t.Fatalf("%s: %s is %+v, want %+.40v", at, e.key, got, e)
			}
		}
	}
	if s.Entries != live || s.Evicted != d.evicted {
		t.Fatalf("%s: %d entries, %d evicted; want %d and %d", at, s.Entries, s.Evicted, live, d.evicted)
	}
}

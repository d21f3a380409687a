package mux

import (
	"cmp"
	"math/bits"
	"slices"
)

// Table finds the requests on a link by stream id. It is a hash table with open addressing:
// each end adds, finds and removes each request, and Go's maps take three times the
// instructions for that (docs/decisions/0011-cost.md). Its size is at most four times the
// highest number of requests at a time, which both ends bound. That bounds the steps of a
// look-up too, whatever ids a peer makes up.
type Table[V any] struct {
	slots []Entry[V] // their number is a power of two; at most half are in use
	shift int        // 64 minus the exponent of that power
	n     int        // slots in use
}

// Entry is a slot of the table. Its ID is 0, which no stream has, while it is free.
type Entry[V any] struct {
	ID    uint64
	Value *V
}

const leastStreamSlots = 16 // of a table that has had an entry

// NewTable returns an empty table.
func NewTable[V any]() Table[V] {
	t := Table[V]{}
	t.resize(1)
	return t
}

func (t *Table[V]) resize(slots int) {
	old := t.slots
	t.slots, t.n = make([]Entry[V], slots), 0
	t.shift = 64 - bits.TrailingZeros(uint(slots))
	for _, s := range old {
		if s.ID != 0 {
			t.Put(s.ID, s.Value)
		}
	}
}

// home returns the slot where the search for id starts. Ids rise one by one; a
// multiplication by 2^64 over the golden ratio spreads them.
func (t *Table[V]) home(id uint64) int {
	return int(id * 0x9e3779b97f4a7c15 >> t.shift)
}

// find returns the slot of id, or the free slot where Put would store it.
func (t *Table[V]) find(id uint64) int {
	i := t.home(id)
	for t.slots[i].ID != id && t.slots[i].ID != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// Len returns the number of entries.
func (t *Table[V]) Len() int { return t.n }

// Get returns the value of id, or nil.
func (t *Table[V]) Get(id uint64) *V { return t.slots[t.find(id)].Value }

// Put adds id, which must not be 0 and must not be in the table.
func (t *Table[V]) Put(id uint64, v *V) {
	if 2*(t.n+1) > len(t.slots) {
		t.resize(max(leastStreamSlots, 2*len(t.slots)))
	}
	t.slots[t.find(id)] = Entry[V]{id, v}
	t.n++
}

// Remove removes id, if it is in the table. Entries behind it that did not find a free slot
// nearer to their home move up.
func (t *Table[V]) Remove(id uint64) {
	i, last := t.find(id), len(t.slots)-1
	if t.slots[i].ID == 0 {
		return
	}
	t.n--
	for j := (i + 1) & last; t.slots[j].ID != 0; j = (j + 1) & last {
		if distance := (j - t.home(t.slots[j].ID)) & last; distance >= (j-i)&last {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = Entry[V]{}
}

// Clear removes all entries, and keeps the memory.
func (t *Table[V]) Clear() {
	clear(t.slots)
	t.n = 0
}

// Each yields all values, in no order. The table must not change meanwhile.
func (t *Table[V]) Each(yield func(*V) bool) {
	for i := range t.slots {
		if v := t.slots[i].Value; v != nil && !yield(v) {
			return
		}
	}
}

// InOrder returns all entries by rising id: a lost link's effects must not depend on slots.
func (t *Table[V]) InOrder() []Entry[V] {
	list := make([]Entry[V], 0, t.n)
	for _, s := range t.slots {
		if s.ID != 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Entry[V]) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

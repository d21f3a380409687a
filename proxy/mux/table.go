package mux

import (
	"cmp"
	"math/bits"
	"slices"
)

// Table finds what a link carries by stream id: an open-addressing hash
// table, for each request is put in, looked up and taken out at either end, and
// Go's maps take three times the instructions for that (docs/decisions/0011-cost.md). It
// grows to no more than four times what the link carried at once, which both ends
// bound, and with it the steps of a look-up, whatever ids a peer makes up.
type Table[V any] struct {
	slots []Entry[V] // a power of two of them, at most half in use
	shift int        // 64 less its exponent
	n     int
}

// Entry is a slot of the table; it is free with id 0, which no stream has.
type Entry[V any] struct {
	ID    uint64
	Value *V
}

const leastStreamSlots = 16

func NewTable[V any]() Table[V] {
	t := Table[V]{}
	t.resize(leastStreamSlots)
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

// home is where id belongs. Ids rise one by one; multiplied by 2^64 over the golden
// ratio, they lie spread out.
func (t *Table[V]) home(id uint64) int {
	return int(id * 0x9e3779b97f4a7c15 >> t.shift)
}

// find is the slot of id, or the free one where it would go.
func (t *Table[V]) find(id uint64) int {
	i := t.home(id)
	for t.slots[i].ID != id && t.slots[i].ID != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

func (t *Table[V]) Len() int { return t.n }

// Get is what is carried as id, or nil.
func (t *Table[V]) Get(id uint64) *V { return t.slots[t.find(id)].Value }

// Put adds id, which is not 0 and not there yet.
func (t *Table[V]) Put(id uint64, v *V) {
	if 2*(t.n+1) > len(t.slots) {
		t.resize(2 * len(t.slots))
	}
	t.slots[t.find(id)] = Entry[V]{id, v}
	t.n++
}

// Remove takes id out, if it is there, and moves up what lies behind it for want of
// a free slot.
func (t *Table[V]) Remove(id uint64) {
	i, last := t.find(id), len(t.slots)-1
	if t.slots[i].ID == 0 {
		return
	}
	t.n--
	for j := (i + 1) & last; t.slots[j].ID != 0; j = (j + 1) & last {
		if away := (j - t.home(t.slots[j].ID)) & last; away >= (j-i)&last {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = Entry[V]{}
}

func (t *Table[V]) Clear() {
	clear(t.slots)
	t.n = 0
}

// Each passes on all that is carried, in no order. Nothing is put in or taken out
// meanwhile.
func (t *Table[V]) Each(yield func(*V) bool) {
	for i := range t.slots {
		if v := t.slots[i].Value; v != nil && !yield(v) {
			return
		}
	}
}

// InOrder lists what is carried by rising id, so that what follows from a lost link
// does not depend on where in the table things lie.
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

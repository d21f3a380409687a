package proxy

import (
	"cmp"
	"math/bits"
	"slices"
)

// linkStreamTable finds what a link carries by stream id: an open-addressing hash
// table, for each request is put in, looked up and taken out at either end, and
// Go's maps take three times the instructions for that (docs/decisions/0011-cost.md). It
// grows to no more than four times what the link carried at once, which both ends
// bound, and with it the steps of a look-up, whatever ids a peer makes up.
type linkStreamTable[V any] struct {
	slots []linkStream[V] // a power of two of them, at most half in use
	shift int             // 64 less its exponent
	n     int
}

// linkStream is a slot of the table; it is free with id 0, which no stream has.
type linkStream[V any] struct {
	id    uint64
	value *V
}

const leastStreamSlots = 16

func newLinkStreamTable[V any]() linkStreamTable[V] {
	t := linkStreamTable[V]{}
	t.resize(leastStreamSlots)
	return t
}

func (t *linkStreamTable[V]) resize(slots int) {
	old := t.slots
	t.slots, t.n = make([]linkStream[V], slots), 0
	t.shift = 64 - bits.TrailingZeros(uint(slots))
	for _, s := range old {
		if s.id != 0 {
			t.put(s.id, s.value)
		}
	}
}

// home is where id belongs. Ids rise one by one; multiplied by 2^64 over the golden
// ratio, they lie spread out.
func (t *linkStreamTable[V]) home(id uint64) int {
	return int(id * 0x9e3779b97f4a7c15 >> t.shift)
}

// find is the slot of id, or the free one where it would go.
func (t *linkStreamTable[V]) find(id uint64) int {
	i := t.home(id)
	for t.slots[i].id != id && t.slots[i].id != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

func (t *linkStreamTable[V]) len() int { return t.n }

// get is what is carried as id, or nil.
func (t *linkStreamTable[V]) get(id uint64) *V { return t.slots[t.find(id)].value }

// put adds id, which is not 0 and not there yet.
func (t *linkStreamTable[V]) put(id uint64, v *V) {
	if 2*(t.n+1) > len(t.slots) {
		t.resize(2 * len(t.slots))
	}
	t.slots[t.find(id)] = linkStream[V]{id, v}
	t.n++
}

// remove takes id out, if it is there, and moves up what lies behind it for want of
// a free slot.
func (t *linkStreamTable[V]) remove(id uint64) {
	i, last := t.find(id), len(t.slots)-1
	if t.slots[i].id == 0 {
		return
	}
	t.n--
	for j := (i + 1) & last; t.slots[j].id != 0; j = (j + 1) & last {
		if away := (j - t.home(t.slots[j].id)) & last; away >= (j-i)&last {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = linkStream[V]{}
}

func (t *linkStreamTable[V]) clear() {
	clear(t.slots)
	t.n = 0
}

// each passes on all that is carried, in no order. Nothing is put in or taken out
// meanwhile.
func (t *linkStreamTable[V]) each(yield func(*V) bool) {
	for i := range t.slots {
		if v := t.slots[i].value; v != nil && !yield(v) {
			return
		}
	}
}

// inOrder lists what is carried by rising id, so that what follows from a lost link
// does not depend on where in the table things lie.
func (t *linkStreamTable[V]) inOrder() []linkStream[V] {
	list := make([]linkStream[V], 0, t.n)
	for _, s := range t.slots {
		if s.id != 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b linkStream[V]) int { return cmp.Compare(a.id, b.id) })
	return list
}

package dubbo

import "github.com/remora-proxy/remora/proxy/exchange"

// call is one place of a table.
type call struct {
	a    *exchange.Attempt // nil: the place is free
	id   int64             // the one in use, or the last one
	next int32             // free place after this one, -1: none

	sent      bool // has left, or is in the connection's buffer
	converted bool // came as HTTP, and is answered so
	valueOnly bool // the answer to a converted call is the value and nothing else
}

// table has the calls that are out on a connection. The lower half of an id
// is the call's place and the upper half grows with each use of the place, so
// that an answer is found without searching, and one that comes too late is not
// taken for that of a later call.
type table struct {
	calls []call
	free  int32 // first free place, -1: none
	n     int   // calls out
}

const (
	dubboPlaces = 1 << 32             // ids of one place are so far apart
	dubboIDs    = dubboPlaces<<31 - 1 // mask of ids, which are positive
)

func newTable() table { return table{free: -1} }

// add gives a a place, and returns the id of its call.
func (t *table) add(a *exchange.Attempt) (id int64) {
	if t.free < 0 {
		t.calls = append(t.calls, call{id: int64(len(t.calls)), next: -1})
		t.free = int32(len(t.calls) - 1)
	}
	call_ := &t.calls[t.free]
	t.free = call_.next
	t.n++
	id = (call_.id + dubboPlaces) & dubboIDs
	*call_ = call{a: a, id: id}
	return id
}

// find returns the call with this id, or nil if there is none any more. It is
// valid until the next add.
func (t *table) find(id int64) *call {
	place := id & (dubboPlaces - 1)
	if place >= int64(len(t.calls)) {
		return nil
	}
	if call := &t.calls[place]; call.id == id && call.a != nil {
		return call
	}
	return nil
}

// remove frees the place of a call that is there.
func (t *table) remove(id int64) {
	place := int32(id & (dubboPlaces - 1))
	call := &t.calls[place]
	call.a, call.next = nil, t.free
	t.free = place
	t.n--
}

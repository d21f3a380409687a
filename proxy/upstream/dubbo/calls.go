package dubbo

import (
	"github.com/remora-proxy/remora/proxy/race"
)

// call is one place of a table.
type call struct {
	a    *race.Attempt // nil while the place is free
	id   int64         // the current one, or the last one of a free place
	next int32         // the next free place; -1 means none

	sent      bool // it was written to the connection
	converted bool // the request is HTTP, and so is its response
	valueOnly bool // the response to a converted call is the value and nothing else
}

// table has the calls in flight on a connection. The lower half of an id is the place of the
// call, so that a response is found without a search. The upper half grows with each use of
// the place, so that a late response is not taken for that of a later call.
type table struct {
	calls []call
	free  int32 // the first free place; -1 means none
	n     int   // calls in flight
}

const (
	idStep = 1 << 32        // between two ids of one place
	idMask = idStep<<31 - 1 // ids are positive
)

func newTable() table { return table{free: -1} }

// add puts a into a free place, and returns the id of its call.
func (t *table) add(a *race.Attempt) (id int64) {
	if t.free < 0 {
		t.calls = append(t.calls, call{id: int64(len(t.calls)), next: -1})
		t.free = int32(len(t.calls) - 1)
	}
	c := &t.calls[t.free]
	t.free = c.next
	t.n++
	id = (c.id + idStep) & idMask
	*c = call{a: a, id: id}
	return id
}

// find returns the call with this id, or nil. The pointer is valid until the next add.
func (t *table) find(id int64) *call {
	place := id & (idStep - 1)
	if place >= int64(len(t.calls)) {
		return nil
	}
	if call := &t.calls[place]; call.id == id && call.a != nil {
		return call
	}
	return nil
}

func (t *table) remove(id int64) {
	place := int32(id & (idStep - 1))
	call := &t.calls[place]
	call.a, call.next = nil, t.free
	t.free = place
	t.n--
}

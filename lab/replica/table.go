package replica

import "hash/maphash"

// table has the entries of a cache. It is not safe for concurrent use.
type table interface {
	has(key []byte) bool
	add(key []byte) // a key that is not there yet
	remove(key []byte)
	len() int
}

func newTable(kind CacheKind) table {
	if kind == FlatCache {
		return &flatTable{maphash.MakeSeed(), map[uint64]flatEntry{}}
	}
	return &pointerTable{entries: map[string]*entry{}}
}

const featuresPerEntry = 4

// pointerTable has 13 objects for each entry, all of which the garbage collector visits.
type pointerTable struct {
	entries map[string]*entry
	last    *entry
}

type entry struct {
	key   string
	items []*item
	next  *entry // the entry filled before it
}

type item struct {
	name  *string
	value *float64
}

func (t *pointerTable) has(key []byte) bool { return t.entries[string(key)] != nil }
func (t *pointerTable) len() int            { return len(t.entries) }

func (t *pointerTable) add(key []byte) {
	e := &entry{key: string(key), next: t.last}
	for range featuresPerEntry {
		name, value := e.key+"/f", float64(len(key))
		e.items = append(e.items, &item{name: &name, value: &value})
	}
	t.entries[e.key], t.last = e, e
}

// remove also cuts the chain, which would keep the entries before it in memory.
func (t *pointerTable) remove(key []byte) {
	if e := t.entries[string(key)]; e != nil {
		e.next = nil
		delete(t.entries, e.key)
	}
}

// flatTable has no pointers in its entries: the garbage collector passes over them. Keys whose
// hashes are equal share an entry, which is unlikely, and harmless here.
type flatTable struct {
	seed    maphash.Seed
	entries map[uint64]flatEntry
}

type flatEntry [featuresPerEntry]float64

func (t *flatTable) has(key []byte) bool {
	_, ok := t.entries[maphash.Bytes(t.seed, key)]
	return ok
}
func (t *flatTable) len() int          { return len(t.entries) }
func (t *flatTable) remove(key []byte) { delete(t.entries, maphash.Bytes(t.seed, key)) }

func (t *flatTable) add(key []byte) {
	t.entries[maphash.Bytes(t.seed, key)] = flatEntry{float64(len(key))}
}

package hpack

// table is a dynamic table: entries by age, and their text in one piece of memory, in which the
// newest text is last. Both grow with use, up to the bound that max sets.
type table struct {
	ring []entry // its length is a power of 2; entry number i is at i modulo that
	last uint32  // number of the newest entry; the first has number 1
	n    int     // entries
	size int     // as RFC 7541 section 4.1 counts
	max  int     // limit of size

	text  []byte // text[start:] is the text of all entries
	start int
	base  uint64 // position of text[0] among all text ever added
}

// entry is one field. Its name begins at position at, and its value follows.
type entry struct {
	at          uint64
	name, value uint32 // lengths
	mark        uint8
}

// get returns the entry with an age below n: 0 is the newest. The text may change with the next
// add.
func (t *table) get(age uint32) (e *entry, text []byte) {
	e = &t.ring[(t.last-age)&uint32(len(t.ring)-1)]
	from := int(e.at - t.base)
	return e, t.text[from : from+int(e.name+e.value)]
}

// shrink makes size at most limit.
func (t *table) shrink(limit int) {
	for t.size > limit {
		t.evict()
	}
}

func (t *table) evict() {
	e := &t.ring[(t.last-uint32(t.n-1))&uint32(len(t.ring)-1)]
	n := int(e.name + e.value)
	t.start += n
	t.size -= n + entryOverhead
	t.n--
}

// add adds an entry and evicts others for it. An entry that is larger than the table only empties it (RFC 7541 section 4.4).
// The slices must not be of the table's text.
func (t *table) add(name, value []byte, mark uint8) {
	n := len(name) + len(value)
	if n+entryOverhead > t.max {
		t.shrink(0)
		return
	}
	t.shrink(t.max - n - entryOverhead)
	if t.n == len(t.ring) {
		t.growRing()
	}
	if len(t.text)+n > cap(t.text) {
		t.makeRoom(n)
	}
	t.last++
	t.ring[t.last&uint32(len(t.ring)-1)] = entry{t.base + uint64(len(t.text)), uint32(len(name)), uint32(len(value)), mark}
	t.text = append(append(t.text, name...), value...)
	t.n++
	t.size += n + entryOverhead
}

func (t *table) growRing() {
	ring := make([]entry, max(16, 2*len(t.ring)))
	for age := range uint32(t.n) {
		at := t.last - age
		ring[at&uint32(len(ring)-1)] = t.ring[at&uint32(len(t.ring)-1)]
	}
	t.ring = ring
}

// makeRoom moves the text to the start of its memory, which has at least twice the size of the
// text then: so moving takes less than one copy of each text.
func (t *table) makeRoom(n int) {
	live := t.text[t.start:]
	to := t.text[:0]
	if need := 2 * (len(live) + n); need > cap(to) {
		to = make([]byte, 0, max(256, need+need/2))
	}
	t.base += uint64(t.start)
	t.text = append(to, live...)
	t.start = 0
}

// held returns the bytes of memory of the table.
func (t *table) held() int { return cap(t.text) + len(t.ring)*24 }

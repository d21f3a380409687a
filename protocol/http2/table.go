package http2

// streams begins, finds and ends streams. Those that are not over are in a hash table with linear probing, by id.
// Streams of one connection have rising ids of one parity, so they rarely collide.
//
// Calls in: begin; the ways to end of ends.go; get, isIdle, wasReset and hasEnded for frames of the peer.
//
// Calls out: the handler hears of an end that it has not asked for.
type streams struct {
	*Conn
	slots  []*Stream // its length is a power of 2, and at least twice n
	n      int
	free   []*Stream
	latest uint32 // the highest id that has begun; clients begin all streams

	resets memory // streams that we have reset: the peer may not know yet
	ended  memory // streams that have ended otherwise
}

// reset prepares for a new connection. No stream of the one before is left.
func (t *streams) reset(c *Conn) {
	t.Conn, t.latest = c, 0
	t.resets.clear()
	t.ended.clear()
}

// close forgets all streams, and releases their owners.
func (t *streams) close() {
	for _, s := range t.slots {
		if s != nil {
			t.w.release(s)
			s.id, s.Owner = 0, nil
		}
	}
	clear(t.slots)
	t.n = 0
}

// len returns the number of streams that are not over.
func (t *streams) len() int { return t.n }

// all has the streams that are not over, in no order, and nil between them. It is valid until the next stream begins or
// ends.
func (t *streams) all() []*Stream { return t.slots }

// last returns the id of the stream that has begun last.
func (t *streams) last() uint32 { return t.latest }

// nextID returns the id of our next stream.
func (t *streams) nextID() uint32 { return (t.latest + 1) | 1 }

// arrive notes that the peer wants to begin a stream.
func (t *streams) arrive(id uint32) { t.latest = id }

// wasReset reports whether we have reset a stream. The peer may not know yet.
func (t *streams) wasReset(id uint32) bool { return t.resets.has(id) }

// mayBeReset reports whether a stream that has begun may be one that we have reset: its id is as low as those that were
// forgotten.
func (t *streams) mayBeReset(id uint32) bool { return id <= t.resets.evicted }

// hasEnded reports whether a stream is known to have ended otherwise.
func (t *streams) hasEnded(id uint32) bool { return t.ended.has(id) }

// isIdle reports whether a stream has never begun. Those of servers, pushed ones, are never allowed.
func (t *streams) isIdle(id uint32) bool { return id&1 == 0 || id > t.latest }

// idsLeft returns how many streams can still begin.
func (t *streams) idsLeft() int { return int(maxID-t.latest+1) / 2 }

func slotOf(id uint32) uint32 { return id >> 1 }

func (t *streams) get(id uint32) *Stream {
	if t.n == 0 {
		return nil
	}
	mask := uint32(len(t.slots) - 1)
	for i := slotOf(id) & mask; ; i = (i + 1) & mask {
		if s := t.slots[i]; s == nil || s.id == id {
			return s
		}
	}
}

// begin returns a new stream in the state open.
func (t *streams) begin(id uint32) *Stream {
	var s *Stream
	if n := len(t.free); n > 0 {
		s = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		s = &Stream{}
	}
	t.latest = id
	s.id, s.length = id, -1
	s.become(streamOpen)
	if t.n++; 2*t.n > len(t.slots) {
		t.grow()
	}
	t.put(s)
	return s
}

func (t *streams) put(s *Stream) {
	mask := uint32(len(t.slots) - 1)
	i := slotOf(s.id) & mask
	for t.slots[i] != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *streams) grow() {
	old := t.slots
	t.slots = make([]*Stream, max(8, 2*len(old)))
	for _, s := range old {
		if s != nil {
			t.put(s)
		}
	}
}

// remove takes s out of the table.
func (t *streams) remove(s *Stream) {
	mask := uint32(len(t.slots) - 1)
	i := slotOf(s.id) & mask
	for t.slots[i] != s {
		i = (i + 1) & mask
	}
	t.n--
	// Streams behind the gap move forward, but not before their own slot.
	for j := i; ; {
		j = (j + 1) & mask
		next := t.slots[j]
		if next == nil {
			break
		}
		if (j-slotOf(next.id))&mask >= (j-i)&mask {
			t.slots[i] = next
			i = j
		}
	}
	t.slots[i] = nil
}

// recycle keeps the memory of s, which must be in no list.
func (t *streams) recycle(s *Stream) {
	*s = Stream{}
	if len(t.free) < maxFree {
		t.free = append(t.free, s)
	}
}

// memory remembers the ids that were added last, up to a bound.
type memory struct {
	ids     []uint32 // a ring once it has the length of the bound
	next    int
	evicted uint32 // the highest id that was forgotten
}

func (m *memory) add(id uint32, bound int) {
	if len(m.ids) < bound {
		m.ids = append(m.ids, id)
		return
	}
	m.evicted = max(m.evicted, m.ids[m.next])
	m.ids[m.next] = id
	if m.next++; m.next == bound {
		m.next = 0
	}
}

func (m *memory) has(id uint32) bool {
	for _, i := range m.ids {
		if i == id {
			return true
		}
	}
	return false
}

func (m *memory) clear() { *m = memory{ids: m.ids[:0]} }

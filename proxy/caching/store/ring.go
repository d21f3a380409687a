package store

import "bytes"

// none is the end of a list of entries.
const none = -1

// segment is the unit in which a ring takes memory.
const segment = 64 << 10

// ring holds the bytes of entries, which begin where the one before ends. An entry may go on at the
// beginning of the ring.
type ring struct {
	segments    [][]byte // of segment bytes, the last one of fewer; nil where nothing was written yet
	room        int      // bytes that fit
	used        int
	head        int   // where the next byte goes
	held        int   // bytes of segments
	first, last int32 // entries; if first is none, last means nothing
}

func (r *ring) init(room int) {
	room = max(room, 0)
	*r = ring{segments: make([][]byte, (room+segment-1)/segment), room: room, first: none}
}

// at returns the bytes from an offset on, at most n, up to the end of their segment. The offset may
// be beyond the end of the ring.
func (r *ring) at(off, n int) []byte {
	if off >= r.room {
		off -= r.room
	}
	i, in := off/segment, off%segment
	s := r.segments[i]
	if s == nil {
		s = make([]byte, min(segment, r.room-i*segment))
		r.segments[i] = s
		r.held += len(s)
	}
	return s[in:min(len(s), in+n)]
}

// write appends b, for which there is room.
func (r *ring) write(b []byte) {
	for len(b) > 0 {
		n := copy(r.at(r.head, len(b)), b)
		b = b[n:]
		r.advance(n)
	}
}

func (r *ring) advance(n int) {
	r.used += n
	r.head = r.after(r.head, n)
}

// copyFrom appends n bytes of from, which may be r: then they are those that r freed last, and the
// bytes before them are read before they are written over.
func (r *ring) copyFrom(from *ring, off, n int) {
	for n > 0 {
		b := from.at(off, n)
		done := copy(r.at(r.head, len(b)), b)
		r.advance(done)
		off, n = from.after(off, done), n-done
	}
}

func (r *ring) appendTo(dst []byte, off, n int) []byte {
	for n > 0 {
		b := r.at(off, n)
		dst = append(dst, b...)
		n -= len(b)
		off = r.after(off, len(b))
	}
	return dst
}

// equal reports whether the bytes from an offset on are b.
func (r *ring) equal(off int, b []byte) bool {
	for len(b) > 0 {
		have := r.at(off, len(b))
		if !bytes.Equal(have, b[:len(have)]) {
			return false
		}
		b = b[len(have):]
		off = r.after(off, len(have))
	}
	return true
}

// after returns the offset n bytes after another, up to which at has returned them. As at takes an offset beyond the end of the ring,
// one subtraction is enough.
func (r *ring) after(off, n int) int {
	if off += n; off >= r.room {
		off -= r.room
	}
	return off
}

package http2

import "encoding/binary"

// priority checks a PRIORITY frame and ignores it (RFC 9113 section 5.3.2).
func (c *Conn) priority(f frame, b []byte) {
	switch {
	case f.id == 0:
		c.fail(ErrStreamID)
	case len(b) != 5:
		c.fail(ErrFrameSize)
	case binary.BigEndian.Uint32(b)&^(1<<31) == f.id:
		if st := c.streams.get(f.id); st != nil {
			c.streams.resetForError(st, ErrDependency)
		} else {
			c.fail(ErrDependency)
		}
	default:
		c.count(floodOthers)
	}
}

// ping handles a PING frame.
func (c *Conn) ping(f frame, b []byte) {
	switch {
	case f.id != 0:
		c.fail(ErrStreamID)
		return
	case len(b) != 8:
		c.fail(ErrFrameSize)
		return
	}
	data := binary.BigEndian.Uint64(b)
	switch {
	case !f.has(flagAck):
		if c.count(floodPings); c.usable() {
			c.w.out = appendPing(c.w.out, flagAck, data)
			c.w.control += frameHead + 8
		}
	case !c.goodbye.onPong(data):
		c.count(floodOthers)
	}
}

// windowUpdate handles a WINDOW_UPDATE frame.
func (c *Conn) windowUpdate(f frame, b []byte) {
	if len(b) != 4 {
		c.fail(ErrFrameSize)
		return
	}
	if c.count(floodOthers); !c.usable() {
		return
	}
	n := int(binary.BigEndian.Uint32(b) & maxWindow)
	if f.id == 0 {
		switch {
		case n == 0:
			c.fail(ErrIncrement)
		case c.w.window > maxWindow-n:
			c.fail(ErrOverflow)
		default:
			c.w.window += n
		}
		return
	}
	st := c.streams.get(f.id)
	switch {
	case st == nil:
		if c.streams.isIdle(f.id) {
			c.fail(ErrIdle)
		}
	case n == 0:
		c.streams.resetForError(st, ErrIncrement)
	case st.window > maxWindow-n:
		c.streams.resetForError(st, ErrOverflow)
	default:
		st.window += n
		c.w.schedule(st)
	}
}

package link

// cursor reads the head of a message. It can fail in two ways, and yields zero values after
// either, so that callers check only once at the end. The first failure counts.
type cursor struct {
	b     []byte // the head
	at    int    // index of what is read next
	names *table
	trace []byte // room for a restored traceparent; nil once used
	size  int    // bytes of text that may still come, interned text included
	err   error  // the peer violates the protocol: the link must be closed
	why   Reason // the message must be rejected; the link stays open
}

func (c *cursor) fail(err error) {
	if c.err == nil && c.why == 0 {
		c.err = err
	}
	c.stop()
}

// reject leaves the rest of the head unread: what follows a list that is too long is not where it would be read.
func (c *cursor) reject(why Reason) {
	if c.err == nil && c.why == 0 {
		c.why = why
	}
	c.stop()
}

// stop makes all that is read from now on zero.
func (c *cursor) stop() { c.b, c.at = nil, 0 }

func (c *cursor) byte() byte {
	if c.at >= len(c.b) {
		c.fail(ErrHead)
		return 0
	}
	v := c.b[c.at]
	c.at++
	return v
}

// varint reads a number. Nearly all are below 128, so that case comes first.
func (c *cursor) varint() uint64 {
	if at := c.at; at < len(c.b) && c.b[at] < 0x80 {
		c.at++
		return uint64(c.b[at])
	}
	return c.longVarint()
}

func (c *cursor) longVarint() uint64 {
	v, n := parseVarint(c.b[c.at:])
	if n <= 0 {
		c.fail(ErrHead)
		return 0
	}
	c.at += n
	return v
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)-c.at) {
		c.fail(ErrHead)
		return nil
	}
	from := c.at
	c.at += int(n)
	return c.b[from:c.at:c.at]
}

// text reads a text: twice its length and its bytes, or twice an index plus one. A text that
// is not of class rejects the message.
func (c *cursor) text(class textClass) []byte {
	t, _ := c.resolve(c.varint(), class)
	return t
}

// resolve is text behind its number v. It also returns classes of the text. Of a text that must be of
// classText they say whether it is of classValue.
func (c *cursor) resolve(v uint64, class textClass) ([]byte, textClass) {
	var t []byte
	var is textClass
	if v&1 != 0 {
		if v>>1 >= uint64(len(c.names.entries)) {
			c.fail(ErrIndex)
			return nil, 0
		}
		e := &c.names.entries[v>>1]
		t, is = e.text, e.class
	} else {
		t = c.take(v >> 1)
		is = classOf(t, class)
	}
	if is&class == 0 {
		c.reject(Malformed)
	}
	c.spend(len(t))
	return t, is
}

// spend limits the size of a head with many references to long entries.
func (c *cursor) spend(n int) {
	if c.size -= n; c.size < 0 {
		c.reject(TooLarge)
	}
}

package http2

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// A few bytes of a header block may refer to much text of the table. So a head takes no memory beyond
// what its buffer has before the handler agrees, and all its fields move together when it grows: a
// buffer that they have left keeps nothing.

// headText is the memory of the text of a head.
type headText struct {
	stream *Stream                    // whose handler is asked before buf grows; nil means that nobody is
	buf    *bytebufferpool.ByteBuffer // takes the text; nil if nobody wants it
	spare  *bytebufferpool.ByteBuffer // takes text that only the table of the decoder needs
	crumbs *bytebufferpool.ByteBuffer // the cookies so far, if they came in several fields
	kept   int                        // bytes of text before the field that is being decoded
}

// headMemory is a Conn that decodes a header block.
type headMemory Conn

// decode decodes b into c.head. Text goes to buf, whose growth the handler of st allows. Without st,
// that of trailers, nobody is asked: they are copied.
func (c *headMemory) decode(st *Stream, b []byte, buf *bytebufferpool.ByteBuffer) {
	h, d := &c.head, &c.dec
	h.stream, h.buf = st, buf
	d.Begin(b)
	var dst []byte
	if d.Skip = buf == nil; !d.Skip {
		dst = buf.B
	}
	for ok := true; ; {
		if dst, ok = d.Next(dst); !ok {
			break
		}
		if d.Skip {
			dst = nil // no room, so that text of the table is not copied
			continue
		}
		if h.field(d.Name, d.Value, d.Mark); h.over || h.bad != nil {
			c.skip(dst)
			dst = nil
			continue
		}
		if h.crumb {
			h.crumb = false
			if dst = dst[:h.kept]; !c.addCrumb(d.Value) {
				c.skip(dst)
				dst = nil
			}
			continue
		}
		h.kept = len(dst)
	}
	if !d.Skip {
		if h.finish(); h.crumbs != nil && h.bad == nil {
			dst = c.foldCookies(dst)
		}
	}
	if !d.Skip {
		buf.B = dst
	}
	c.opts.Buffers.Release(&h.spare)
	c.opts.Buffers.Release(&h.crumbs)
	h.headText = headText{}
	if d.Err() != nil {
		(*Conn)(c).fail(ErrCompression)
	}
}

// skip makes all further fields of the block unwanted. dst has the text so far.
func (c *headMemory) skip(dst []byte) {
	c.dec.Skip = true
	c.head.buf.B = dst[:c.head.kept]
}

const crumbSeparator = "; "

// addCrumb adds value to the text of the cookies. It reports whether the handler has memory for that.
func (c *headMemory) addCrumb(value []byte) bool {
	h := &c.head
	n := len(crumbSeparator) + len(value)
	if h.crumbs == nil {
		first := &h.headers[h.cookie].Value
		if n += len(*first); !c.mayGrow(n) {
			return false
		}
		h.crumbs = c.opts.Buffers.GetRoom(n)
		h.crumbs.B = append(h.crumbs.B, *first...)
		*first = nil // counted with the others
	} else if used := len(h.crumbs.B); used+n > cap(h.crumbs.B) {
		if !c.mayGrow(used + n) {
			return false
		}
		c.opts.Buffers.Reserve(h.crumbs, n, 0)
	}
	h.crumbs.B = append(append(h.crumbs.B, crumbSeparator...), value...)
	return true
}

// foldCookies makes the text of all cookies the value of their field.
func (c *headMemory) foldCookies(dst []byte) []byte {
	h := &c.head
	if n := len(h.crumbs.B); n > cap(dst)-len(dst) {
		if dst, _ = c.Grow(dst, len(dst), n); c.dec.Skip {
			return dst
		}
	}
	from := len(dst)
	dst = append(dst, h.crumbs.B...)
	h.headers[h.cookie].Value = dst[from:len(dst):len(dst)]
	return dst
}

// Grow implements hpack.Grower.
func (c *headMemory) Grow(dst []byte, from, n int) ([]byte, int) {
	h := &c.head
	n += len(dst) - from
	if !c.dec.Skip && !c.mayGrow(n) {
		c.skip(dst)
	}
	if c.dec.Skip {
		return c.useSpare(dst[from:], n)
	}
	to := c.opts.Buffers.GetRoom(max(h.size()+n, min(2*cap(dst), doubledHead)))
	grown := h.moveTo(to.B)
	h.kept = len(grown)
	grown = append(grown, dst[from:]...)
	h.buf.B, to.B = grown, h.buf.B
	c.opts.Buffers.Put(to)
	return grown, h.kept
}

// useSpare returns memory with the text of a field that is not wanted, and with room for n bytes in all.
func (c *headMemory) useSpare(text []byte, n int) ([]byte, int) {
	h := &c.head
	if len(text) == 0 && h.spare != nil && cap(h.spare.B) >= n {
		return h.spare.B[:0], 0
	}
	to := c.opts.Buffers.GetRoom(n)
	to.B = append(to.B, text...)
	c.opts.Buffers.Release(&h.spare) // text may be in it
	h.spare = to
	return to.B, 0
}

// mayGrow reports whether the head may have n bytes more. It decides about a head that is far over the
// limits. The exact limit is that of head.field: cookies are in memory twice.
func (c *headMemory) mayGrow(n int) bool {
	h := &c.head
	if n += h.size() + h.crumbsLen(); n > 2*c.opts.Limits.Header+fieldFraming {
		h.over = true
	} else if h.stream != nil && !c.handler.MayGrow(h.stream, protocol.RoomOf(n)) {
		h.over, h.noRoom = true, true
	}
	return !h.over
}

// texts calls do for the text of all fields so far. do returns where the text is now.
func (h *head) texts(do func(text []byte) []byte) {
	h.method, h.path, h.authority, h.host = do(h.method), do(h.path), do(h.authority), do(h.host)
	for i := range h.headers {
		f := &h.headers[i]
		f.Name, f.Value = do(f.Name), do(f.Value)
	}
}

// size returns the bytes of text of all fields so far.
func (h *head) size() (n int) {
	h.texts(func(text []byte) []byte {
		n += len(text)
		return text
	})
	return n
}

func (h *head) crumbsLen() int {
	if h.crumbs == nil {
		return 0
	}
	return len(h.crumbs.B)
}

// moveTo copies the text of all fields to dst, which has room.
func (h *head) moveTo(dst []byte) []byte {
	h.texts(func(text []byte) []byte {
		if text == nil { // says that there is no such field
			return nil
		}
		at := len(dst)
		dst = append(dst, text...)
		return dst[at:len(dst):len(dst)]
	})
	return dst
}

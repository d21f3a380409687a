package http2

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2/hpack"
)

// A few bytes of a header block may refer to much text of the table. So a head takes no memory beyond
// what its buffer has before the handler agrees, and all its fields move together when it grows: a
// buffer that they have left keeps nothing.

// headDecoder decodes header blocks, one after another.
type headDecoder struct {
	head  head
	table hpack.Decoder
	headText

	opts    *Options
	handler Handler
}

// headText is the memory of the text of a head.
type headText struct {
	stream *Stream                    // whose handler is asked before buf grows; nil means that nobody is
	buf    *bytebufferpool.ByteBuffer // takes the text; nil if nobody wants it
	spare  *bytebufferpool.ByteBuffer // takes text that only the table needs
	crumbs *bytebufferpool.ByteBuffer // the cookies so far, if they came in several fields
	kept   int                        // bytes of text before the field that is being decoded
}

// reset prepares the decoder for a new connection.
func (d *headDecoder) reset(o *Options, h Handler) {
	d.opts, d.handler = o, h
	d.table.Grower = d
	d.table.Reset(marks)
}

// decode decodes b into d.head. Its fields go to headers. Their text goes to buf, whose growth the handler of st allows.
// Without st, that of trailers, nobody is asked: they are copied. It reports whether b is well-formed; otherwise the
// table has no use any more.
func (d *headDecoder) decode(k headKind, st *Stream, b []byte, headers []protocol.Header, buf *bytebufferpool.ByteBuffer) bool {
	h, t := &d.head, &d.table
	h.begin(k, &d.opts.Limits, headers)
	d.stream, d.buf = st, buf
	t.Begin(b)
	var dst []byte
	if t.Skip = buf == nil; !t.Skip {
		dst = buf.B
	}
	for ok := true; ; {
		if dst, ok = t.Next(dst); !ok {
			break
		}
		if t.Skip {
			dst = nil // no room, so that text of the table is not copied
			continue
		}
		if h.field(&t.Field); h.over || h.bad != nil {
			d.skip(dst)
			dst = nil
			continue
		}
		if h.crumb {
			h.crumb = false
			if dst = dst[:d.kept]; !d.addCrumb(t.Value) {
				d.skip(dst)
				dst = nil
			}
			continue
		}
		d.kept = len(dst)
	}
	if !t.Skip {
		if h.finish(); d.crumbs != nil && h.bad == nil {
			dst = d.foldCookies(dst)
		}
	}
	if !t.Skip {
		buf.B = dst
	}
	d.opts.Buffers.Release(&d.spare)
	d.opts.Buffers.Release(&d.crumbs)
	d.headText = headText{}
	return t.Err() == nil
}

// skip makes all further fields of the block unwanted. dst has the text so far.
func (d *headDecoder) skip(dst []byte) {
	d.table.Skip = true
	d.buf.B = dst[:d.kept]
}

const crumbSeparator = "; "

// addCrumb adds value to the text of the cookies. It reports whether the handler has memory for that.
func (d *headDecoder) addCrumb(value []byte) bool {
	h := &d.head
	n := len(crumbSeparator) + len(value)
	if d.crumbs == nil {
		first := &h.headers[h.cookie].Value
		if n += len(*first); !d.mayGrow(n) {
			return false
		}
		d.crumbs = d.opts.Buffers.GetRoom(n)
		d.crumbs.B = append(d.crumbs.B, *first...)
		*first = nil // counted with the others
	} else if used := len(d.crumbs.B); used+n > cap(d.crumbs.B) {
		if !d.mayGrow(used + n) {
			return false
		}
		d.opts.Buffers.Reserve(d.crumbs, n, 0)
	}
	d.crumbs.B = append(append(d.crumbs.B, crumbSeparator...), value...)
	return true
}

// foldCookies makes the text of all cookies the value of their field.
func (d *headDecoder) foldCookies(dst []byte) []byte {
	h := &d.head
	if n := len(d.crumbs.B); n > cap(dst)-len(dst) {
		if dst, _ = d.Grow(dst, len(dst), n); d.table.Skip {
			return dst
		}
	}
	from := len(dst)
	dst = append(dst, d.crumbs.B...)
	h.headers[h.cookie].Value = dst[from:len(dst):len(dst)]
	return dst
}

// Grow implements hpack.Grower.
func (d *headDecoder) Grow(dst []byte, from, n int) ([]byte, int) {
	h := &d.head
	n += len(dst) - from
	if !d.table.Skip && !d.mayGrow(n) {
		d.skip(dst)
	}
	if d.table.Skip {
		return d.useSpare(dst[from:], n)
	}
	to := d.opts.Buffers.GetRoom(max(h.size()+n, min(2*cap(dst), doubledHead)))
	grown := h.moveTo(to.B)
	d.kept = len(grown)
	grown = append(grown, dst[from:]...)
	d.buf.B, to.B = grown, d.buf.B
	d.opts.Buffers.Put(to)
	return grown, d.kept
}

// useSpare returns memory with the text of a field that is not wanted, and with room for n bytes in all.
func (d *headDecoder) useSpare(text []byte, n int) ([]byte, int) {
	if len(text) == 0 && d.spare != nil && cap(d.spare.B) >= n {
		return d.spare.B[:0], 0
	}
	to := d.opts.Buffers.GetRoom(n)
	to.B = append(to.B, text...)
	d.opts.Buffers.Release(&d.spare) // text may be in it
	d.spare = to
	return to.B, 0
}

// mayGrow reports whether the head may have n bytes more. It decides about a head that is far over the
// limits. The exact limit is that of head.field: cookies are in memory twice.
func (d *headDecoder) mayGrow(n int) bool {
	h := &d.head
	if d.crumbs != nil {
		n += len(d.crumbs.B)
	}
	if n += h.size(); n > 2*d.opts.Limits.Header+fieldFraming {
		h.over = true
	} else if d.stream != nil && !d.handler.MayGrow(d.stream, protocol.RoomOf(n)) {
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

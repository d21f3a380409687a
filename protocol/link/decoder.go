package link

import "github.com/valyala/bytebufferpool"

// decoder decodes complete messages, and passes them to the handler.
type decoder struct {
	limits ReaderLimits
	tokens bool // responses may have a StreamToken
	names  table
	cursor cursor // of the message that is being decoded

	handler  Handler         // acceptor or dialer
	acceptor RequestHandler  // nil at a dialer
	dialer   ResponseHandler // nil at an acceptor
}

// headLimit limits both the encoded head and its decoded text: the header limit, and room for
// lengths and for text outside headers.
func (d *decoder) headLimit() int { return d.limits.Header + 4<<10 }

// deliver decodes the complete message in buf and passes it to the handler.
func (d *decoder) deliver(t frameType, id uint64, buf *bytebufferpool.ByteBuffer) error {
	length, n := parseVarint(buf.B) // checked by Reader.message
	whole, end := len(buf.B), n+int(length)
	d.cursor = cursor{names: &d.names, size: d.headLimit()}
	if length > 1 && buf.B[n+1]&headTrace != 0 {
		// The text is appended to the message before any slice points into the buffer.
		buf.B = append(buf.B, traceRoom[:]...)
		d.cursor.trace = buf.B[whole:]
	}
	d.cursor.b = buf.B[n:end:end]
	if t == frameRequest {
		return d.request(id, buf.B[end:whole:whole], buf)
	}
	return d.response(id, buf.B[end:whole:whole], buf)
}

var traceRoom [traceText]byte

// request decodes into Scratch, and swaps that with the handler's once the
// message is known to be valid.
func (d *decoder) request(id uint64, body []byte, buf *bytebufferpool.ByteBuffer) error {
	req := &d.limits.Scratch.Request
	req.Reset()
	ttl := d.cursor.readRequest(req, d.limits.Headers)
	if !d.readable(id, buf) {
		return d.cursor.err
	}
	req.Body = body
	theirs := d.acceptor.NewRequest(id)
	if theirs == nil {
		d.limits.Buffers.Put(buf)
		return nil
	}
	*theirs, *req = *req, *theirs
	d.acceptor.OnRequest(id, theirs, ttl, buf)
	return nil
}

func (d *decoder) response(id uint64, body []byte, buf *bytebufferpool.ByteBuffer) error {
	resp := &d.limits.Scratch.Response
	resp.Reset()
	codec := d.cursor.readResponse(resp, d.limits.Headers)
	if resp.StreamToken != nil && (len(body) > 0 || !d.tokens) {
		d.cursor.reject(Malformed) // two bodies, or a token that nobody would use
	}
	if !d.readable(id, buf) {
		return d.cursor.err
	}
	resp.Body = body
	theirs := d.dialer.NewResponse(id)
	if theirs == nil {
		d.limits.Buffers.Put(buf)
		return nil
	}
	*theirs, *resp = *resp, *theirs
	d.dialer.OnResponse(id, theirs, codec, buf)
	return nil
}

// interim decodes an interim response. One that can't be taken is dropped: it could have been left out.
func (d *decoder) interim(id uint64, payload []byte) error {
	resp := &d.limits.Scratch.Response
	resp.Reset()
	d.cursor = cursor{b: payload, names: &d.names, size: d.headLimit(), trace: make([]byte, traceText)}
	d.cursor.readInterim(resp, d.limits.Headers)
	d.cursor.b, d.cursor.trace = nil, nil
	if d.cursor.err == nil && d.cursor.why == 0 {
		d.dialer.OnInterim(id, resp)
	}
	return d.cursor.err
}

// readable reports whether the head was read to its end. If not, it gives buf back and rejects
// the message, unless the link must be closed.
func (d *decoder) readable(id uint64, buf *bytebufferpool.ByteBuffer) bool {
	d.cursor.b, d.cursor.trace = nil, nil // they would keep the message's memory
	if d.cursor.err == nil && d.cursor.why == 0 {
		return true
	}
	d.limits.Buffers.Put(buf)
	if d.cursor.err == nil {
		d.handler.OnReject(id, d.cursor.why)
	}
	return false
}

package link

import "github.com/valyala/bytebufferpool"

// dispatch handles one complete frame. payload is valid until it returns.
func (r *Reader) dispatch(f header, payload []byte, h Handler) error {
	r.moved++
	switch f.typ {
	case frameRequest, frameResponse:
		return r.message(f, payload, h)
	case frameInterim:
		return r.interim(f.id, payload, h)
	case frameDefine:
		return r.names.define(f.id, payload)
	case frameCredit:
		n, err := parseCredit(payload)
		if err == nil {
			h.OnCredit(n)
		}
		return err
	case framePing:
		h.OnPing(f.id)
	case framePong:
		h.OnPong(f.id)
	case frameLoad:
		l, err := parseLoad(payload)
		if err == nil {
			h.OnLoad(l)
		}
		return err
	case frameProbe, frameAnswer:
		return r.probe(f.typ, payload, h)
	case frameGoAway:
		why, err := parseByte(payload)
		if err == nil {
			h.OnGoAway(f.id, Reason(why))
		}
		return err
	case frameCancel, frameCancelAck, frameRefused:
		return r.end(f, payload, h)
	case frameStart, frameWithdraw:
		return r.tied(f, h)
	default:
		return ErrFrameType
	}
	return nil
}

// probe handles a PROBE or an ANSWER.
func (r *Reader) probe(t frameType, payload []byte, h Handler) error {
	if (t == frameProbe) != (r.role == Acceptor) {
		return ErrRole // only the dialer sends PROBE; only the acceptor sends ANSWER
	}
	if t == frameProbe {
		h.OnProbe()
		return nil
	}
	l, err := parseLoad(payload)
	if err == nil {
		h.OnAnswer(l)
	}
	return err
}

func (r *Reader) end(f header, payload []byte, h Handler) error {
	if f.id == 0 {
		return ErrStreamID
	}
	if (f.typ == frameCancel) != (r.role == Acceptor) {
		return ErrRole // only the dialer sends CANCEL; only the acceptor sends the others
	}
	r.Forget(f.id)
	if f.typ == frameCancel {
		h.OnCancel(f.id)
		return nil
	}
	v, err := parseByte(payload)
	if err != nil {
		return err
	}
	if f.typ == frameRefused {
		h.OnRefused(f.id, Reason(v))
	} else {
		h.OnCancelAck(f.id, Dropped(v))
	}
	return nil
}

// tied handles the frames of tied hedges.
func (r *Reader) tied(f header, h Handler) error {
	switch {
	case f.id == 0:
		return ErrStreamID
	case f.typ == frameStart:
		h.OnStart(f.id)
	case r.role == Dialer:
		return ErrRole
	default:
		h.OnWithdraw(f.id)
	}
	return nil
}

// message handles a REQUEST or RESPONSE: a complete message, or the start of one.
func (r *Reader) message(f header, payload []byte, h Handler) error {
	if (f.typ == frameRequest) != (r.role == Acceptor) {
		return ErrRole
	}
	if f.typ == frameRequest {
		if f.id <= r.lastID {
			return ErrStreamID
		}
		r.lastID = f.id
		r.requests++
	} else if f.id == 0 || r.assembling[f.id] != nil {
		return ErrStreamID
	}
	total := uint64(len(payload))
	if f.flags&flagMore != 0 {
		var n int
		if total, n = parseVarint(payload); n <= 0 {
			return ErrHead
		}
		payload = payload[n:]
		if total <= uint64(len(payload)) {
			return ErrHead // no DATA would follow
		}
	}
	head, n := parseVarint(payload)
	if n <= 0 || head > total-uint64(n) {
		return ErrHead
	}
	switch {
	case total-uint64(n)-head > uint64(r.limits.Message) || head > uint64(r.headLimit()):
		h.OnReject(f.id, TooLarge)
	case f.flags&flagMore == 0:
		buf := r.limits.Buffers.Get(len(payload) + traceText)
		buf.B = append(buf.B, payload...)
		return r.deliver(f.typ, f.id, buf, h)
	case len(r.assembling) >= r.limits.Streams, r.limits.Full != nil && r.limits.Full(f.id):
		h.OnReject(f.id, Overload)
	default:
		r.admit(f.typ, f.id, int(total), payload)
	}
	return nil
}

// headLimit limits both the encoded head and its decoded text: the header limit, and room for
// lengths and for text outside headers.
func (r *Reader) headLimit() int { return r.limits.Header + 4<<10 }

// deliver decodes the complete message in buf and passes it to the handler.
func (r *Reader) deliver(t frameType, id uint64, buf *bytebufferpool.ByteBuffer, h Handler) error {
	length, n := parseVarint(buf.B) // checked by message
	whole, end := len(buf.B), n+int(length)
	r.cursor = cursor{names: &r.names, size: r.headLimit()}
	if length > 1 && buf.B[n+1]&headTrace != 0 {
		// The text is appended to the message before any slice points into the buffer.
		buf.B = append(buf.B, traceRoom[:]...)
		r.cursor.trace = buf.B[whole:]
	}
	r.cursor.b = buf.B[n:end:end]
	if t == frameRequest {
		return r.request(id, buf.B[end:whole:whole], buf, h)
	}
	return r.response(id, buf.B[end:whole:whole], buf, h)
}

var traceRoom [traceText]byte

// request decodes into Scratch, and swaps that with the handler's once the
// message is known to be valid.
func (r *Reader) request(id uint64, body []byte, buf *bytebufferpool.ByteBuffer, h Handler) error {
	req := &r.limits.Scratch.Request
	req.Reset()
	ttl := r.cursor.readRequest(req, r.limits.Headers)
	if !r.readable(id, buf, h) {
		return r.cursor.err
	}
	req.Body = body
	theirs := h.NewRequest(id)
	if theirs == nil {
		r.limits.Buffers.Put(buf)
		return nil
	}
	*theirs, *req = *req, *theirs
	h.OnRequest(id, theirs, ttl, buf)
	return nil
}

func (r *Reader) response(id uint64, body []byte, buf *bytebufferpool.ByteBuffer, h Handler) error {
	resp := &r.limits.Scratch.Response
	resp.Reset()
	codec := r.cursor.readResponse(resp, r.limits.Headers)
	if resp.StreamToken != nil && (len(body) > 0 || !r.tokens) {
		r.cursor.reject(Malformed) // two bodies, or a token that nobody would use
	}
	if !r.readable(id, buf, h) {
		return r.cursor.err
	}
	resp.Body = body
	theirs := h.NewResponse(id)
	if theirs == nil {
		r.limits.Buffers.Put(buf)
		return nil
	}
	*theirs, *resp = *resp, *theirs
	h.OnResponse(id, theirs, codec, buf)
	return nil
}

// interim decodes an interim response. One that can't be taken is dropped: it could have been left out.
func (r *Reader) interim(id uint64, payload []byte, h Handler) error {
	switch {
	case r.role == Acceptor:
		return ErrRole
	case id == 0 || r.assembling[id] != nil:
		return ErrStreamID
	}
	resp := &r.limits.Scratch.Response
	resp.Reset()
	r.cursor = cursor{b: payload, names: &r.names, size: r.headLimit(), trace: make([]byte, traceText)}
	r.cursor.readInterim(resp, r.limits.Headers)
	r.cursor.b, r.cursor.trace = nil, nil
	if r.cursor.err == nil && r.cursor.why == 0 {
		h.OnInterim(id, resp)
	}
	return r.cursor.err
}

// readable reports whether the head was read to its end. If not, it gives buf back and rejects
// the message, unless the link must be closed.
func (r *Reader) readable(id uint64, buf *bytebufferpool.ByteBuffer, h Handler) bool {
	r.cursor.b, r.cursor.trace = nil, nil // they would keep the message's memory
	if r.cursor.err == nil && r.cursor.why == 0 {
		return true
	}
	r.limits.Buffers.Put(buf)
	if r.cursor.err == nil {
		h.OnReject(id, r.cursor.why)
	}
	return false
}

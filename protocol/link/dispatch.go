package link

// dispatch handles one complete frame. payload is valid until it returns.
func (r *Reader) dispatch(f header, payload []byte) error {
	r.progress.frames++
	switch f.typ {
	case frameRequest, frameResponse:
		return r.message(f, payload)
	case frameDefine:
		return r.names.define(f.id, payload)
	case frameCredit:
		n, err := parseCredit(payload)
		if err == nil {
			r.handler.OnCredit(n)
		}
		return err
	case framePing:
		r.handler.OnPing(f.id)
	case framePong:
		r.handler.OnPong(f.id)
	case frameStart:
		return r.start(f.id)
	case frameCancel, frameWithdraw, frameProbe:
		return r.fromDialer(f)
	case frameInterim, frameCancelAck, frameRefused, frameAnswer:
		return r.fromAcceptor(f, payload)
	case frameLoad:
		l, err := parseLoad(payload)
		if err == nil && r.role == Dialer {
			r.dialer.OnLoad(l)
		}
		return err
	case frameGoAway:
		why, err := parseByte(payload)
		if err == nil && r.role == Dialer { // a dialer that sends no more requests closes the link itself
			r.dialer.OnGoAway(f.id, Reason(why))
		}
		return err
	default:
		return ErrFrameType
	}
	return nil
}

func (r *Reader) start(id uint64) error {
	switch {
	case id == 0:
		return ErrStreamID
	case r.role == Dialer:
		r.dialer.OnStart(id)
	default:
		r.acceptor.OnStart(id)
	}
	return nil
}

// fromDialer handles a frame that only an acceptor may receive.
func (r *Reader) fromDialer(f header) error {
	switch {
	case r.role != Acceptor:
		return ErrRole
	case f.typ == frameProbe:
		r.acceptor.OnProbe()
	case f.id == 0:
		return ErrStreamID
	case f.typ == frameCancel:
		r.Forget(f.id)
		r.acceptor.OnCancel(f.id)
	default:
		r.acceptor.OnWithdraw(f.id)
	}
	return nil
}

// fromAcceptor handles a frame that only a dialer may receive.
func (r *Reader) fromAcceptor(f header, payload []byte) error {
	if r.role != Dialer {
		return ErrRole
	}
	if f.typ == frameAnswer {
		l, err := parseLoad(payload)
		if err == nil {
			r.dialer.OnAnswer(l)
		}
		return err
	}
	if f.id == 0 {
		return ErrStreamID
	}
	if f.typ == frameInterim {
		if r.assembly.messages[f.id] != nil {
			return ErrStreamID
		}
		return r.interim(f.id, payload)
	}
	r.Forget(f.id)
	v, err := parseByte(payload)
	if err != nil {
		return err
	}
	if f.typ == frameRefused {
		r.dialer.OnRefused(f.id, Reason(v))
	} else {
		r.dialer.OnCancelAck(f.id, Dropped(v))
	}
	return nil
}

// message handles a REQUEST or RESPONSE: a complete message, or the start of one.
func (r *Reader) message(f header, payload []byte) error {
	if (f.typ == frameRequest) != (r.role == Acceptor) {
		return ErrRole
	}
	if f.typ == frameRequest {
		if f.id <= r.lastID {
			return ErrStreamID
		}
		r.lastID = f.id
		r.requests++
	} else if f.id == 0 || r.assembly.messages[f.id] != nil {
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
		r.handler.OnReject(f.id, TooLarge)
	case f.flags&flagMore == 0:
		buf := r.limits.Buffers.Get(len(payload) + traceText)
		buf.B = append(buf.B, payload...)
		return r.deliver(f.typ, f.id, buf)
	case len(r.assembly.messages) >= r.limits.Streams, r.limits.Full != nil && r.limits.Full(f.id):
		r.handler.OnReject(f.id, Overload)
	default:
		r.assembly.admit(f.typ, f.id, int(total), payload)
	}
	return nil
}

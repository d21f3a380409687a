package http1

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// DecodeRequest decodes the head of a request from the start of b and returns its length n;
// the body begins at b[n]. The slices of req alias b[:n] and are valid while those bytes stay
// where they are. Only a Path that an absolute-form target leaves out is a constant, or new memory
// if a query follows.
//
// It returns ErrIncomplete until b holds the whole head. It returns an *Error if the head is
// refused; the connection can't be used any more then. Only ErrMessageTooLarge comes with n >
// 0: the head is decoded and valid, but announces a body larger than lim.Message, which the
// caller may stream.
//
// req is reset first. Its Headers keep their capacity; only their growth allocates.
func DecodeRequest(b []byte, req *protocol.Request, h *Head, lim *protocol.Limits) (n int, err error) {
	if h.start == 0 && len(b) > 0 && b[0] == '\r' {
		// One empty line before a request is ignored (RFC 9112 section 2.2).
		if len(b) < 2 {
			return 0, ErrIncomplete
		}
		if b[1] != '\n' {
			return 0, ErrBareCR
		}
		h.start, h.line, h.scanned = 2, 2, 2
	}
	if len(b) <= h.start {
		return 0, ErrIncomplete
	}
	if !protocol.TokenChar[b[h.start]] {
		return 0, ErrBadRequestLine // at once: TLS and other protocols may not send an LF for long
	}
	f := fields{request: true, length: -1}
	if n, err = h.request(b, req, &f, lim); err != nil {
		return 0, err
	}
	if err = h.finishRequest(req, &f); err != nil {
		return 0, err
	}
	if h.Length > lim.Message {
		return n, ErrMessageTooLarge
	}
	return n, nil
}

// request decodes the start line and the fields. On the first call it decodes without looking
// for the end of the head, since most heads arrive whole: that saves a quarter of the time. If
// this fails for any reason, request finds the end first and then decodes: that result does
// not depend on how the input is split.
func (h *Head) request(b []byte, req *protocol.Request, f *fields, lim *protocol.Limits) (n int, err error) {
	if h.scanned == h.start {
		w := b[:min(len(b), h.start+lim.Header)]
		if i := bytes.IndexByte(w[h.start:], '\n') + 1; i > 0 {
			if n, err = h.requestFrom(w, h.start+i, req, f, lim); err == nil {
				return n, nil
			}
		}
	}
	if n, err = h.end(b, lim.Header, ErrTargetTooLong); err != nil {
		return 0, err
	}
	*f = fields{request: true, length: -1}
	return h.requestFrom(b[:n], h.fields, req, f, lim)
}

// requestFrom decodes a head whose fields begin at b[i].
func (h *Head) requestFrom(b []byte, i int, req *protocol.Request, f *fields, lim *protocol.Limits) (n int, err error) {
	req.Reset()
	if i-2 < h.start || b[i-2] != '\r' {
		return 0, ErrBareLF
	}
	if err = h.requestLine(b[h.start:i-2], req); err != nil {
		return 0, err
	}
	f.minor = h.Minor
	req.Headers, n, err = f.parse(b, i, req.Headers, lim.Headers)
	return n, err
}

func (h *Head) finishRequest(req *protocol.Request, f *fields) error {
	if err := f.checkFraming(); err != nil {
		return err
	}
	switch {
	case f.hosts > 1:
		return ErrDuplicateHost
	case f.hosts == 0 && h.Minor == 1:
		return ErrMissingHost
	case f.hosts == 1 && !protocol.IsAuthority(f.host, false):
		return ErrBadHost
	}
	if req.Authority == nil { // an authority in the target takes precedence (RFC 9112 section 3.2.2)
		req.Authority = f.host
	}
	switch {
	case f.coding:
		h.Framing, h.nominated = Chunked, f.nominated
	case f.length >= 0:
		h.Framing, h.Length = FixedLength, f.length
	}
	h.KeepAlive = f.keepAlive()
	h.Upgrade = f.upgrades > 0 && f.options&optUpgrade != 0 && h.Minor == 1
	if h.Upgrade && f.upgrades == 1 && mayTunnel(f.protocols) {
		h.Protocols = f.protocols
	}
	// HTTP/1.0 clients don't know interim responses, and a client without a body does not wait
	// for one (RFC 9110 section 10.1.1).
	h.ExpectContinue = f.expect && h.Minor == 1 && (h.Framing == Chunked || h.Length > 0)
	return nil
}

// requestLine decodes "GET /path HTTP/1.1" (RFC 9112 section 3).
func (h *Head) requestLine(line []byte, req *protocol.Request) (err error) {
	i := tokenEnd(line, 0)
	if i == 0 || i == len(line) || line[i] != ' ' {
		return ErrBadRequestLine
	}
	req.Method = line[:i]
	rest := line[i+1:]
	if i = targetEnd(rest); i == 0 || i == len(rest) {
		return ErrBadRequestLine
	}
	if rest[i] != ' ' {
		return ErrBadTarget
	}
	target := rest[:i]
	if h.Minor, err = version(rest[i+1:], ErrBadRequestLine); err != nil {
		return err
	}
	h.HeadMethod = string(req.Method) == "HEAD"
	h.Connect = string(req.Method) == "CONNECT"
	switch {
	case h.Connect:
		req.Authority = target
		if !protocol.IsAuthority(target, true) {
			return ErrBadTarget
		}
	case target[0] == '/':
		req.Path = target
	case string(target) == "*":
		if string(req.Method) != "OPTIONS" {
			return ErrBadTarget
		}
		req.Path = target
	default:
		return h.absoluteForm(target, req)
	}
	return nil
}

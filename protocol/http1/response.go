package http1

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// DecodeResponse decodes the head of a response as DecodeRequest decodes that of a request.
// toHead means that the request was a HEAD. Interim responses (1xx) are returned like others,
// with NoBody. The caller must skip them and decode again behind n with a reset Head, except
// for a 101, which sets h.Upgrade.
//
// The errors are the same, but not their Status: the client gets a 502 for a refused response.
func DecodeResponse(b []byte, toHead bool, resp *protocol.Response, h *Head, lim *protocol.Limits) (n int, err error) {
	if len(b) > 0 && b[0] != 'H' {
		return 0, ErrBadStatusLine
	}
	f := fields{length: -1}
	if n, err = h.response(b, resp, &f, lim); err != nil {
		return 0, err
	}
	h.HeadMethod = toHead
	if err = h.finishResponse(resp, &f); err != nil {
		return 0, err
	}
	if h.Length > lim.Message {
		return n, ErrMessageTooLarge
	}
	return n, nil
}

func (h *Head) response(b []byte, resp *protocol.Response, f *fields, lim *protocol.Limits) (n int, err error) {
	if h.scanned == 0 {
		w := b[:min(len(b), lim.Header)]
		if i := bytes.IndexByte(w, '\n') + 1; i > 0 {
			if n, err = h.responseFrom(w, i, resp, f, lim); err == nil {
				return n, nil
			}
		}
	}
	if n, err = h.end(b, lim.Header, ErrHeaderTooLarge); err != nil {
		return 0, err
	}
	*f = fields{length: -1}
	return h.responseFrom(b[:n], h.fields, resp, f, lim)
}

// responseFrom decodes a head whose fields begin at b[i].
func (h *Head) responseFrom(b []byte, i int, resp *protocol.Response, f *fields, lim *protocol.Limits) (n int, err error) {
	resp.Reset()
	if i < 2 || b[i-2] != '\r' {
		return 0, ErrBareLF
	}
	if err = h.statusLine(b[:i-2], resp); err != nil {
		return 0, err
	}
	f.minor = h.Minor
	resp.Headers, n, err = f.parse(b, i, resp.Headers, lim.Headers)
	return n, err
}

// statusLine decodes "HTTP/1.1 200 OK" (RFC 9112 section 4).
func (h *Head) statusLine(line []byte, resp *protocol.Response) (err error) {
	if len(line) < len("HTTP/1.1 200") || line[8] != ' ' {
		return ErrBadStatusLine
	}
	if h.Minor, err = version(line[:8], ErrBadStatusLine); err != nil {
		return err
	}
	c, d, u := line[9], line[10], line[11]
	if c < '1' || c > '5' || !isDigit(d) || !isDigit(u) {
		return ErrBadStatusLine
	}
	resp.Status = int(c-'0')*100 + int(d-'0')*10 + int(u-'0')
	if len(line) == 12 {
		return nil // unambiguous without the space, which some servers leave out
	}
	if line[12] != ' ' || textEnd(line, 13) != len(line) {
		return ErrBadStatusLine
	}
	resp.Reason = line[13:]
	return nil
}

// finishResponse evaluates the collected fields of a response (RFC 9112 section 6.3).
func (h *Head) finishResponse(resp *protocol.Response, f *fields) error {
	if err := f.checkFraming(); err != nil {
		return err
	}
	h.KeepAlive = f.keepAlive()
	switch {
	case resp.Status < 200:
		// A body could not be distinguished from the final response.
		if f.coding || f.length > 0 {
			return ErrBodyNotAllowed
		}
		h.Upgrade = resp.Status == 101
		if h.Upgrade && f.upgrades == 1 && f.options&optUpgrade != 0 && mayTunnel(f.protocols) {
			h.Protocols = f.protocols
		}
	case resp.Status == 204:
		// No body, whatever is declared; but a server that declares one may send it.
		h.KeepAlive = h.KeepAlive && !f.coding && f.length <= 0
	case resp.Status == 304 || h.HeadMethod:
		resp.DeclaredLength = f.length
	case f.coding:
		h.Framing, h.nominated = Chunked, f.nominated
	case f.length >= 0:
		h.Framing, h.Length = FixedLength, f.length
	default:
		h.Framing, h.KeepAlive = UntilClose, false
	}
	return nil
}

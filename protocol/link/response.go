package link

import (
	"encoding/binary"

	"github.com/remora-proxy/remora/protocol"
)

// The head of a response:
//
//	codec, flags (a byte each) | status (varint) | reason if flagged |
//	declared length if flagged | token if flagged | status of the RPC if flagged |
//	headers | trailers if flagged | never indexed (may be missing)
//
// Without its flag, the reason is the standard reason of the status, and no length is
// declared. A response with a token has neither body nor trailers.
const (
	responseReason   = 1 << 0
	responseDeclared = 1 << 1
	responseStream   = 1 << 4 // a connection of its own carries the body; the token follows
	responseRPC      = 1 << 5 // a Dubbo response; its own status follows
)

func (t *interner) appendResponse(dst []byte, resp *protocol.Response, codec protocol.Codec) []byte {
	at := len(dst) + 1
	dst = append(dst, byte(codec), 0)
	dst = binary.AppendUvarint(dst, uint64(resp.Status))
	flags := byte(0)
	if string(resp.Reason) != standardReason(uint64(resp.Status)) {
		flags |= responseReason
		dst = appendLiteral(dst, resp.Reason)
	}
	if resp.DeclaredLength >= 0 {
		flags |= responseDeclared
		dst = binary.AppendUvarint(dst, uint64(resp.DeclaredLength))
	}
	if len(resp.StreamToken) > 0 {
		flags |= responseStream
		dst = append(dst, resp.StreamToken...)
	}
	if resp.RPC != 0 {
		flags |= responseRPC
		dst = append(dst, resp.RPC)
	}
	dst, traced := t.appendHeaders(dst, resp.Headers)
	if traced {
		flags |= headTrace
	}
	if len(resp.Trailers) != 0 {
		flags |= headTrailers
		dst = t.appendTrailers(dst, resp.Trailers)
	}
	dst[at] = flags
	if t.never > 0 {
		dst = t.appendNeverIndexed(dst, false, resp.Headers, resp.Trailers)
	}
	return dst
}

// readResponse reads a head into resp and returns the codec of the message.
func (c *cursor) readResponse(resp *protocol.Response, maxHeaders int) protocol.Codec {
	codec := protocol.Codec(c.byte())
	flags := c.byte()
	c.codec(codec)
	status := c.varint()
	if status < leastStatus || status > mostStatus {
		c.reject(Malformed)
		return codec
	}
	resp.Status = int(status)
	if flags&responseReason != 0 {
		resp.Reason = c.text(classText)
	} else {
		resp.Reason = reasons[status-leastStatus]
	}
	if flags&responseDeclared != 0 {
		resp.DeclaredLength = int64(min(c.varint(), 1<<63-1))
	}
	if flags&responseStream != 0 {
		resp.StreamToken = c.take(uint64(len(Token{})))
		if !mayStream(status) || flags&headTrailers != 0 {
			c.reject(Malformed)
		}
	}
	if flags&responseRPC != 0 {
		resp.RPC = c.byte()
	}
	token, _, _ := nameClasses(codec)
	resp.Headers = c.headers(resp.Headers, maxHeaders, token)
	if flags&headTrailers != 0 {
		resp.Trailers = c.headers(resp.Trailers, maxHeaders, token)
	}
	c.neverIndexed(nil, resp.Headers, resp.Trailers)
	return codec
}

// An interim response is
//
//	status (varint) | headers | never indexed (may be missing)
func (t *interner) appendInterim(dst []byte, resp *protocol.Response) []byte {
	dst = binary.AppendUvarint(dst, uint64(resp.Status))
	dst, _ = t.appendHeaders(dst, resp.Headers)
	if t.never > 0 {
		dst = t.appendNeverIndexed(dst, false, resp.Headers, nil)
	}
	return dst
}

func (c *cursor) readInterim(resp *protocol.Response, maxHeaders int) {
	status := c.varint()
	if status < 100 || status > 199 || status == 101 {
		c.reject(Malformed)
		return
	}
	resp.Status = int(status)
	resp.Headers = c.headers(resp.Headers, maxHeaders, classToken)
	c.neverIndexed(nil, resp.Headers, nil)
}

// mayStream reports whether a body may follow this status (RFC 9112 section 6.3). After any
// other status, a body would be read as the next response.
func mayStream(status uint64) bool { return status != 204 && status != 304 }

// The statuses of final responses (RFC 9110 section 15).
const (
	leastStatus = 200
	mostStatus  = 599
)

func standardReason(status uint64) string {
	if status-leastStatus < uint64(len(reasons)) {
		return string(reasons[status-leastStatus])
	}
	return ""
}

var reasons = func() (t [mostStatus + 1 - leastStatus][]byte) {
	for status, phrase := range protocol.Reasons {
		if status >= leastStatus {
			t[status-leastStatus] = []byte(phrase)
		}
	}
	return t
}()

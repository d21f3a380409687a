package link

import (
	"encoding/binary"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// The head of a request:
//
//	codec, flags, attempt (a byte each) | time left in µs (varint; 0 means no deadline)
//	service | method | path | authority | headers | trailers if flagged
//	for how long the head of the response is held in µs (varint; may be missing) | never indexed (may be missing)
const (
	// Flags of both heads, in their second byte.
	headTrailers = 1 << 2
	headTrace    = 1 << 3 // one of the headers is a traceparent in binary

	requestHedge      = 1 << 0
	requestIdempotent = 1 << 1
	// Two bits of priority.
	requestPriority = 4
	priorityMask    = 3
	requestOneWay   = 1 << 6
	requestTimed    = 1 << 7
)

// Priorities of requests, whatever the attempt. All others have 0.
const (
	priorityAlone = 1
	priorityTied  = 2
	priorityBatch = 3
)

func (t *interner) appendRequest(dst []byte, req *protocol.Request, ttl time.Duration) []byte {
	at := len(dst) + 1
	dst = append(dst, byte(req.Codec), requestFlags(req), req.Attempt)
	dst = binary.AppendUvarint(dst, timeLeft(ttl))
	t.service = t.lookup(req.Service, t.service, kindService)
	dst = appendText(dst, req.Service, t.service)
	if req.NeverIndexed {
		dst = appendLiteral(appendLiteral(appendLiteral(dst, req.Method), req.Path), req.Authority)
	} else {
		t.method = t.lookup(req.Method, t.method, kindName)
		dst = appendText(dst, req.Method, t.method)
		dst = appendLiteral(dst, req.Path)
		t.authority = t.lookup(req.Authority, t.authority, kindValue)
		dst = appendText(dst, req.Authority, t.authority)
	}
	dst, traced := t.appendHeaders(dst, req.Headers)
	if traced {
		dst[at] |= headTrace
	}
	if len(req.Trailers) != 0 {
		dst = t.appendTrailers(dst, req.Trailers)
	}
	never := req.NeverIndexed || t.never > 0
	if req.Hold > 0 || never {
		dst = binary.AppendUvarint(dst, micros(req.Hold))
	}
	if never {
		dst = t.appendNeverIndexed(dst, req.NeverIndexed, req.Headers, req.Trailers)
	}
	return dst
}

func requestFlags(req *protocol.Request) (flags byte) {
	if req.Hedge {
		flags |= requestHedge
	}
	switch {
	case req.Batch:
		flags |= priorityBatch << requestPriority
	case req.Tied:
		flags |= priorityTied << requestPriority
	case req.Alone:
		flags |= priorityAlone << requestPriority
	}
	if req.Idempotent {
		flags |= requestIdempotent
	}
	if req.OneWay {
		flags |= requestOneWay
	}
	if req.Timed {
		flags |= requestTimed
	}
	if len(req.Trailers) != 0 {
		flags |= headTrailers
	}
	return flags
}

// readRequest reads a head into req and returns the time left; 0 means no deadline.
func (c *cursor) readRequest(req *protocol.Request, maxHeaders int) time.Duration {
	req.Codec = protocol.Codec(c.byte())
	flags := c.byte()
	req.Hedge = flags&requestHedge != 0
	req.Idempotent = flags&requestIdempotent != 0
	req.OneWay = flags&requestOneWay != 0
	req.Timed = flags&requestTimed != 0
	priority := flags >> requestPriority & priorityMask
	req.Batch, req.Alone = priority == priorityBatch, priority == priorityAlone
	req.Tied = req.Hedge && priority == priorityTied
	req.Attempt = c.byte()
	ttl := c.duration()

	token, target, authority := nameClasses(req.Codec)
	c.codec(req.Codec)
	req.Service = c.text(classText)
	req.Method = c.text(token)
	req.Path = c.text(target)
	req.Authority = c.text(authority)
	req.Headers = c.headers(req.Headers, maxHeaders, token)
	if flags&headTrailers != 0 {
		req.Trailers = c.headers(req.Trailers, maxHeaders, token)
	}
	if c.at < len(c.b) {
		req.Hold = c.duration()
	}
	c.neverIndexed(&req.NeverIndexed, req.Headers, req.Trailers)
	return ttl
}

// codec rejects a codec that a later version may have added.
func (c *cursor) codec(codec protocol.Codec) {
	if !codec.Known() {
		c.reject(Malformed)
	}
}

// nameClasses returns the classes of names and targets. Dubbo's attachments need not be
// tokens, but must not become two header lines when they are converted to HTTP.
func nameClasses(codec protocol.Codec) (token, target, authority textClass) {
	if codec == protocol.CodecHTTP {
		return classToken, classTarget, classAuthority
	}
	return classText, classText, classText
}

// timeLeft returns d in microseconds, rounded up. 0 means no deadline. A deadline that has
// passed becomes 1, so that the peer sees it.
func timeLeft(d time.Duration) uint64 {
	if d < 0 {
		return 1
	}
	return micros(d)
}

// micros returns d in microseconds, rounded up; 0 or less becomes 0.
func micros(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64(d-1)/uint64(time.Microsecond) + 1
}

// maxMicros is the longest accepted duration: it fits into a Duration.
const maxMicros = uint64(1<<63-1) / uint64(time.Microsecond)

func (c *cursor) duration() time.Duration {
	return time.Duration(min(c.varint(), maxMicros)) * time.Microsecond
}

package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/trace"
)

// What is added to messages and taken from them on the way. Two sidecars and the
// link between them are one intermediary to the applications beside them: what a
// request is given, it is given where it enters over HTTP, and an answer where it
// comes from its application. Links carry both as they are.

// Headers between the sidecar and what is beside it. From outside they are
// honoured on loopback listeners only; none is sent on.
const (
	headerPrefix     = "x-remora-"
	headerIdempotent = "x-remora-idempotent" // "1": may be sent more than once
	headerAttempt    = "x-remora-attempt"    // attempt number that led to this call; also sent to the application
	headerHedge      = "x-remora-hedge"      // "off": the caller wants no hedges
)

// traceMember in tracestate marks a call that a hedge or a retry led to.
const traceMember = "remora=h"

// Names and values that are added. They are shared and never written to.
var (
	nameVia            = []byte("Via")
	nameForwardedFor   = []byte("X-Forwarded-For")
	nameForwardedProto = []byte("X-Forwarded-Proto")
	nameRequestID      = []byte("X-Request-Id")
	nameDate           = []byte("Date")
	nameContentType    = []byte("Content-Type")
	nameError          = []byte("X-Remora-Error")

	protoHTTP = []byte("http")

	// viaValues is by the minor version of the message received (RFC 9110
	// section 7.6.3). The pseudonym stands for all sidecars, so that none tells
	// where it runs.
	viaValues = [2][]byte{[]byte("1.0 remora"), []byte("1.1 remora")}

	// viaPseudonym is the part of them that names us.
	viaPseudonym = []byte(" remora")
)

const (
	// addedHeaders and addedBytes are what a message grows by at most.
	addedHeaders = 6
	addedBytes   = 384

	// maxPassed is how many sidecars a request may have passed, by its Via. A
	// chain of applications that hand Via on is shorter; what goes on is routed
	// back to where it comes from.
	maxPassed = 8

	// maxForwards is the highest Max-Forwards that goes on.
	maxForwards = 255

	// maxRequestID is the longest X-Request-Id that is kept.
	maxRequestID = 128
)

// origin is what a session knows of its peer.
type origin struct {
	trusted bool   // on loopback: what it says of itself is believed
	addr    []byte // its IP address
}

// clientField is a header that arrive looks at.
type clientField uint8

const (
	fieldOther clientField = iota
	fieldOwn               // x-remora-*
	fieldForwardedFor
	fieldForwardedProto
	fieldRequestID
	fieldTraceState
	fieldVia
)

func clientFieldOf(name []byte) clientField {
	switch {
	case len(name) == len(nameVia) && protocol.EqualFold(name, "via"):
		return fieldVia
	case len(name) < len(headerPrefix)+1:
		return fieldOther
	case name[0]|0x20 == 't':
		if protocol.EqualFold(name, "tracestate") {
			return fieldTraceState
		}
		return fieldOther
	case name[0]|0x20 != 'x':
		return fieldOther
	case protocol.EqualFold(name[:len(headerPrefix)], headerPrefix):
		return fieldOwn
	case protocol.EqualFold(name, "x-request-id"):
		return fieldRequestID
	case protocol.EqualFold(name, "x-forwarded-for"):
		return fieldForwardedFor
	case protocol.EqualFold(name, "x-forwarded-proto"):
		return fieldForwardedProto
	}
	return fieldOther
}

// arrive takes in a request that came over HTTP/1.minor. The sidecar's own
// headers are taken out and, if the peer can be trusted, heeded. Via,
// X-Forwarded-For, X-Forwarded-Proto and X-Request-Id are added: after what a
// trusted peer says there, instead of what any other does. An X-Request-Id is
// kept from anyone if it is one, short and printable. Of a request that is not to
// be sent on, ex.stopped tells why.
func arrive(ex *exchange, ids *rand.PCG, from *origin, minor int) {
	req := &ex.req
	kept := req.Headers[:0]
	ex.requestID, ex.forwarded = nil, ex.forwarded[:0]
	proto, passed, marked := protoHTTP, 0, false
	for _, h := range req.Headers {
		switch clientFieldOf(h.Name) {
		case fieldOther:
			kept = append(kept, h)
		case fieldOwn:
			if from.trusted {
				applyHint(ex, h)
			}
		case fieldForwardedFor:
			if from.trusted && len(h.Value) > 0 {
				ex.forwarded = append(append(ex.forwarded, h.Value...), ", "...)
			}
		case fieldForwardedProto:
			if from.trusted && len(h.Value) > 0 {
				proto = h.Value
			}
		case fieldRequestID:
			if ex.requestID == nil && saneRequestID(h.Value) {
				ex.requestID = h.Value
			}
		case fieldVia:
			passed += bytes.Count(h.Value, viaPseudonym)
			kept = append(kept, h)
		case fieldTraceState:
			marked = marked || from.trusted && trace.HasMember(h.Value, traceMember)
			kept = append(kept, h)
		}
	}
	if ex.requestID == nil {
		ex.requestID = newRequestID(ids, &ex.newID)
	}
	client := from.addr
	if len(ex.forwarded) > 0 {
		ex.forwarded = append(ex.forwarded, from.addr...)
		client = ex.forwarded
	}
	clear(req.Headers[len(kept):]) // what is beyond the list is not cleared with it
	// Trace state means nothing without a traceparent that makes sense.
	if marked {
		_, _, req.Hedge = traceContext(kept)
	}
	req.Headers = append(kept,
		protocol.Header{Name: nameVia, Value: viaValues[minor&1]},
		protocol.Header{Name: nameForwardedFor, Value: client},
		protocol.Header{Name: nameForwardedProto, Value: proto},
		protocol.Header{Name: nameRequestID, Value: ex.requestID})
	switch {
	case passed > maxPassed:
		ex.stopped = FailLoop
	case !lowerMaxForwards(ex):
		ex.stopped = FailMaxForwards
	}
}

// lowerMaxForwards counts this sidecar in the Max-Forwards of a TRACE or OPTIONS, and
// tells whether the request may go on (RFC 9110 section 7.6.2). What is no number
// stays as it is.
func lowerMaxForwards(ex *exchange) (goesOn bool) {
	req := &ex.req
	if string(req.Method) != "TRACE" && string(req.Method) != "OPTIONS" {
		return true
	}
	at := slices.IndexFunc(req.Headers, func(h protocol.Header) bool { return protocol.EqualFold(h.Name, "max-forwards") })
	if at < 0 {
		return true
	}
	value := &req.Headers[at].Value
	left, err := strconv.ParseUint(string(*value), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return true
	case left == 0:
		return false
	}
	ex.forwards = strconv.AppendUint(ex.forwards[:0], min(left-1, maxForwards), 10)
	*value = ex.forwards
	return true
}

// applyHint obeys one of the sidecar's own headers.
func applyHint(ex *exchange, h protocol.Header) {
	req := &ex.req
	switch {
	case protocol.EqualFold(h.Name, headerIdempotent):
		req.Idempotent = string(h.Value) == "1"
	case protocol.EqualFold(h.Name, headerHedge):
		ex.unhedged = string(h.Value) == "off"
	case protocol.EqualFold(h.Name, headerAttempt):
		if n, err := strconv.ParseUint(string(h.Value), 10, 8); err == nil {
			req.Attempt = uint8(n)
		}
	}
}

// saneRequestID tells whether an id can be passed on and logged as it is.
func saneRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// newRequestID fills buf with 128 random bits in hexadecimal. They tell requests
// apart; they are no secret.
func newRequestID(rnd *rand.PCG, buf *[32]byte) []byte {
	for half := 0; half < len(buf); half += 16 {
		x := rnd.Uint64()
		binary.LittleEndian.PutUint64(buf[half:], hexadecimal(uint32(x)))
		binary.LittleEndian.PutUint64(buf[half+8:], hexadecimal(uint32(x>>32)))
	}
	return buf[:]
}

// hexadecimal is the eight digits of x, the lowest in the lowest byte: all at once,
// since every request without an id needs 32.
func hexadecimal(x uint32) uint64 {
	d := uint64(x)
	d = (d | d<<16) & 0x0000ffff0000ffff
	d = (d | d<<8) & 0x00ff00ff00ff00ff
	d = (d | d<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (d + 0x0606060606060606) >> 4 & 0x0101010101010101
	return d + '0'*0x0101010101010101 + letters*('a'-'0'-10)
}

// record adds to an answer that came over HTTP/1.minor what its recipient owes
// to those it is passed on to: Via, and Date if there is none.
func (ans *answer) record(minor int) {
	dated := protocol.Find(ans.Headers, "date") != nil
	ans.Headers = append(ans.Headers, protocol.Header{Name: nameVia, Value: viaValues[minor&1]})
	if !dated {
		ans.datestamp()
	}
}

// datestamp adds a Date to an answer that has none (RFC 9110 section 6.6.1).
func (ans *answer) datestamp() {
	if now := ans.w.dateValue(); now != nil {
		copy(ans.date[:], now)
		ans.Headers = append(ans.Headers, protocol.Header{Name: nameDate, Value: ans.date[:]})
	}
}

// identify adds the request's id to the answer for its client, unless the
// application has put one there.
func (ans *answer) identify(id []byte) {
	if protocol.Find(ans.Headers, "x-request-id") == nil {
		ans.Headers = append(ans.Headers, protocol.Header{Name: nameRequestID, Value: id})
	}
}

// peerAddr is the IP address in a connection's "ip:port", as X-Forwarded-For has
// it.
func peerAddr(remote string) []byte {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return []byte(ap.Addr().Unmap().WithZone("").String())
	}
	return []byte("unknown") // RFC 7239 section 6.2
}

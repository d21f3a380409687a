package downstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

const (
	// maxPassed is the highest number of sidecars in the Via and CDN-Loop of a request. A chain
	// of applications that pass them on is shorter: a longer one is a routing loop.
	maxPassed = 8

	maxForwards  = 255 // the highest Max-Forwards that is sent on
	maxRequestID = 128 // length of the longest X-Request-Id that is kept
)

// Origin is what a session knows about its peer.
type Origin struct {
	Listener *exchange.Listener // that has accepted its connection
	Addr     []byte             // its IP address, as text
	Client   forwarded.Client
}

// OriginOf returns the origin of a connection that l has accepted from remote, an "ip:port".
func OriginOf(l *exchange.Listener, remote string) Origin {
	return Origin{Listener: l, Addr: peerAddr(remote), Client: l.Trust.Client(remote)}
}

// clientField is the kind of a header that prepareRequest reads or replaces.
type clientField uint8

const (
	fieldOther clientField = iota
	fieldOwn               // x-remora-*
	fieldForwardedFor
	fieldForwardedProto
	fieldRequestID
	fieldTimeout // of others, see protocol.TimeoutField
	fieldTraceState
	fieldVia
	fieldLoop
	fieldCredentials
)

func clientFieldOf(name []byte) clientField {
	switch {
	case len(name) == len(protocol.NameVia) && protocol.EqualFold(name, "via"):
		return fieldVia
	case len(name) == len(protocol.NameLoop) && protocol.EqualFold(name, "cdn-loop"):
		return fieldLoop
	case len(name) < len(protocol.HeaderPrefix)+1:
		return fieldOther
	case name[0]|0x20 == 't':
		if protocol.EqualFold(name, "tracestate") {
			return fieldTraceState
		}
		return fieldOther
	case name[0]|0x20 != 'x':
		switch c := name[0] | 0x20; {
		case c == 'g' && protocol.EqualFold(name, protocol.HeaderGRPCTimeout):
			return fieldTimeout
		case (c == 'a' || c == 'p') && protocol.IsCredentials(name):
			return fieldCredentials
		}
		return fieldOther
	case protocol.IsOwn(name):
		return fieldOwn
	case protocol.EqualFold(name, "x-request-id"):
		return fieldRequestID
	case protocol.EqualFold(name, "x-forwarded-for"):
		return fieldForwardedFor
	case protocol.EqualFold(name, "x-forwarded-proto"):
		return fieldForwardedProto
	case protocol.EqualFold(name, protocol.HeaderEnvoyTimeout):
		return fieldTimeout
	}
	return fieldOther
}

// prepareRequest sets the headers of a request. It removes the sidecar's own headers, and applies
// those of a local peer. It adds X-Forwarded-For and X-Forwarded-Proto, to the values of a trusted
// peer and in place of others, and an X-Request-Id if there is no valid one. It adds hop, which
// tells the next sidecar that the request was here. prepareRequest removes what the peer may not
// set. ex.Refusal says why the request must not be sent on.
func prepareRequest(ex *exchange.Exchange, ids *rand.PCG, from *Origin, hop protocol.Header) {
	req := &ex.Request
	way := takeWay(ex, from)
	if ex.RequestID == nil {
		ex.RequestID = newRequestID(ids, &ex.NewID)
	}
	client := from.Addr
	if len(ex.Forwarded) > 0 {
		client = from.client(ex)
	}
	FilterTrailers(req, from)
	clear(req.Headers[len(way.kept):]) // Reset clears only the list, not the array behind it
	// A tracestate counts only with a valid traceparent.
	if way.marked {
		if _, _, valid := trace.ContextOf(way.kept); valid {
			req.Attempt = max(req.Attempt, 1)
		}
	}
	req.Headers = append(way.kept,
		hop,
		protocol.Header{Name: protocol.NameForwardedFor, Value: client, Valid: len(ex.Forwarded) == 0},
		way.proto,
		protocol.Header{Name: protocol.NameRequestID, Value: ex.RequestID, Valid: true})
	switch {
	case way.passed > maxPassed:
		ex.RefuseLater(fault.Loop)
	case !lowerMaxForwards(ex):
		ex.RefuseLater(fault.MaxForwards)
	case way.rejected:
		ex.RefuseLater(fault.Underscore)
	}
}

// way is what the headers of a request say of its way to this sidecar.
type way struct {
	kept     []protocol.Header // those that are sent on
	proto    protocol.Header   // X-Forwarded-Proto
	passed   int               // sidecars
	marked   bool              // tracestate says that the request is sent more than once
	rejected bool              // a name is none that the peer may send
}

// takeWay takes out of a request the headers that the peer may not set, and those that prepareRequest
// replaces. It applies what they say of the request to ex.
func takeWay(ex *exchange.Exchange, from *Origin) (w way) {
	req := &ex.Request
	w.kept = req.Headers[:0]
	ex.RequestID, ex.Forwarded = nil, ex.Forwarded[:0]
	w.proto = protocol.Header{Name: protocol.NameForwardedProto, Value: protocol.SchemeHTTP, Valid: true}
	if from.Listener.Secure {
		w.proto.Value = protocol.SchemeHTTPS
	}
	for _, h := range req.Headers {
		switch clientFieldOf(h.Name) {
		case fieldTimeout:
			if from.Client.Trusted {
				applyTimeout(ex, h)
			}
			fallthrough
		case fieldOther:
			verdict := from.Client.Judge(h.Name)
			w.rejected = w.rejected || verdict == forwarded.Reject
			if verdict == forwarded.Keep {
				w.kept = append(w.kept, h)
			}
		case fieldOwn:
			if from.Listener.Local { // hints are heeded
				applyHint(ex, h)
			}
		case fieldForwardedFor:
			if from.Client.Trusted && len(h.Value) > 0 {
				ex.Forwarded = append(append(ex.Forwarded, h.Value...), ", "...)
			}
		case fieldForwardedProto:
			if from.Client.Trusted && len(h.Value) > 0 {
				w.proto.Value, w.proto.Valid = h.Value, h.Valid
			}
		case fieldRequestID:
			if ex.RequestID == nil && validRequestID(h.Value) {
				ex.RequestID = h.Value
			}
		case fieldVia:
			w.passed += sidecarsIn(h.Value, viaPseudonym)
			w.kept = append(w.kept, h)
		case fieldLoop:
			w.passed += sidecarsIn(h.Value, loopPseudonym)
			w.kept = append(w.kept, h)
		case fieldCredentials:
			if from.Client.Judge(h.Name) == forwarded.Keep {
				w.kept = append(w.kept, h)
				if string(req.Method) != "CONNECT" { // a CONNECT ends here
					ex.NoteLogin(protocol.LoginOf(h.Value))
				}
			}
		case fieldTraceState:
			w.marked = w.marked || from.Listener.Local && trace.HasMember(h.Value, trace.Member)
			if from.Client.Judge(h.Name) == forwarded.Keep {
				w.kept = append(w.kept, h)
			}
		}
	}
	return w
}

// sidecarsIn returns how many elements of a list have our pseudonym, which of finds in an element.
func sidecarsIn(list []byte, of func(element []byte) []byte) (n int) {
	for more := true; more; {
		var element []byte
		element, list, more = bytes.Cut(list, []byte(","))
		if bytes.Equal(of(bytes.Trim(element, " \t")), protocol.Pseudonym) {
			n++
		}
	}
	return n
}

// viaPseudonym returns the second word of an element of Via, "1.1 NAME (COMMENT)".
func viaPseudonym(element []byte) []byte {
	_, rest, _ := bytes.Cut(element, []byte(" "))
	name, _, _ := bytes.Cut(rest, []byte(" "))
	return name
}

// loopPseudonym returns the name in an element of CDN-Loop, "NAME; PARAMETER" (RFC 8586 section 2).
func loopPseudonym(element []byte) []byte {
	name, _, _ := bytes.Cut(element, []byte(";"))
	return bytes.TrimRight(name, " \t")
}

// FilterTrailers removes the trailers that the peer may not set. prepareRequest calls it; when that was called
// with the head of a request, so must be FilterTrailers once the trailers have arrived.
func FilterTrailers(req *protocol.Request, from *Origin) {
	if len(req.Trailers) > 0 {
		req.Trailers = keepTrailers(req.Trailers, &from.Client)
	}
}

// keepTrailers returns the trailers of a request that its client may send, in the memory of hs. Applications
// may take them for headers, so that none may be one that prepareRequest reads or replaces.
func keepTrailers(hs []protocol.Header, client *forwarded.Client) []protocol.Header {
	return slices.DeleteFunc(hs, func(h protocol.Header) bool {
		switch clientFieldOf(h.Name) {
		case fieldOwn, fieldForwardedFor, fieldForwardedProto, fieldRequestID, fieldVia:
			return true
		}
		return client.Judge(h.Name) != forwarded.Keep
	})
}

// client returns the value of X-Forwarded-For: what is believed of the peer's list, which
// ex.Forwarded has with a comma after each line, and the peer.
func (from *Origin) client(ex *exchange.Exchange) []byte {
	const comma = ", "
	believed := from.Client.Believed(ex.Forwarded[:len(ex.Forwarded)-len(comma)])
	if len(believed) == 0 {
		return from.Addr
	}
	n := copy(ex.Forwarded, believed)
	ex.Forwarded = append(append(ex.Forwarded[:n], comma...), from.Addr...)
	return ex.Forwarded
}

// lowerMaxForwards subtracts this sidecar from the Max-Forwards of a TRACE or OPTIONS, if it
// is a number, and reports whether the request may be sent on (RFC 9110 section 7.6.2).
func lowerMaxForwards(ex *exchange.Exchange) (ok bool) {
	req := &ex.Request
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
	ex.MaxForwards = strconv.AppendUint(ex.MaxForwards[:0], min(left-1, maxForwards), 10)
	*value = ex.MaxForwards
	return true
}

func applyHint(ex *exchange.Exchange, h protocol.Header) {
	req := &ex.Request
	switch {
	case protocol.EqualFold(h.Name, protocol.HeaderIdempotent):
		req.Idempotent = string(h.Value) == "1"
	case protocol.EqualFold(h.Name, protocol.HeaderHedge):
		ex.NoHedge = string(h.Value) == "off"
	case protocol.EqualFold(h.Name, protocol.HeaderClass):
		ex.ClassName = h.Value
	case protocol.EqualFold(h.Name, protocol.HeaderPriority):
		req.Batch = string(h.Value) == protocol.PriorityBatch
	case protocol.EqualFold(h.Name, protocol.HeaderAttempt):
		if n, err := strconv.ParseUint(string(h.Value), 10, 8); err == nil {
			req.Attempt = uint8(n)
		}
	default:
		applyTimeout(ex, h)
	}
}

// applyTimeout limits the time of the request if h says how long its client waits.
func applyTimeout(ex *exchange.Exchange, h protocol.Header) {
	if d, ok := protocol.ParseTimeout(protocol.TimeoutFieldOf(h.Name), h.Value); ok {
		ex.SetTimeout(d)
	}
}

// AddRequestID adds the request's id to a response, unless the application has set one.
func AddRequestID(resp *protocol.Response, id []byte) {
	if id != nil && protocol.Find(resp.Headers, "x-request-id") == nil {
		resp.Headers = append(resp.Headers, protocol.Header{Name: protocol.NameRequestID, Value: id, Valid: true})
	}
}

// validRequestID reports whether an id is short and printable, safe to send on and to log.
func validRequestID(id []byte) bool {
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

// newRequestID fills buf with 128 random bits in hexadecimal. An id is unique, but no secret.
func newRequestID(rnd *rand.PCG, buf *[32]byte) []byte {
	for half := 0; half < len(buf); half += 16 {
		x := rnd.Uint64()
		binary.LittleEndian.PutUint64(buf[half:], hexadecimal(uint32(x)))
		binary.LittleEndian.PutUint64(buf[half+8:], hexadecimal(uint32(x>>32)))
	}
	return buf[:]
}

// hexadecimal returns the eight digits of x, the lowest in the lowest byte. It computes them
// together, since every request without an id needs 32.
func hexadecimal(x uint32) uint64 {
	d := uint64(x)
	d = (d | d<<16) & 0x0000ffff0000ffff
	d = (d | d<<8) & 0x00ff00ff00ff00ff
	d = (d | d<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (d + 0x0606060606060606) >> 4 & 0x0101010101010101
	return d + '0'*0x0101010101010101 + letters*('a'-'0'-10)
}

// peerAddr returns the IP address of a peer in the form that X-Forwarded-For uses.
func peerAddr(remote string) []byte {
	if addr := loop.PeerAddr(remote); addr.IsValid() {
		return addr.Unmap().WithZone("").AppendTo(make([]byte, 0, len("255.255.255.255")))
	}
	return []byte("unknown") // RFC 7239 section 6.2
}

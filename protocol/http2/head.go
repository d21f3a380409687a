package http2

import (
	"bytes"
	"math"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2/hpack"
)

// head collects the fields of one header block.
type head struct {
	kind   headKind
	limits protocol.Limits // Header is what is left of it

	method, path, authority, host []byte

	headers []protocol.Header
	status  int
	length  int64  // -1: none
	cookie  int    // index in headers of the cookies, or -1
	crumb   bool   // the latest field goes on with the cookies
	pseudo  uint16 // bits of the pseudo-header fields
	never   bool   // one of these, or Host, must never be indexed
	expects bool
	https   bool   // the scheme of a request
	over    bool   // over the limits, or noRoom
	noRoom  bool   // the handler has no memory for it
	bad     *Error // the first thing wrong
}

type headKind uint8

const (
	headRequest headKind = iota
	headResponse
	headTrailers
	headIgnored // decoded for the table only
)

// begin prepares h. headers is where the fields go.
func (h *head) begin(k headKind, l *protocol.Limits, headers []protocol.Header) {
	*h = head{kind: k, limits: *l, headers: headers, length: -1, cookie: -1}
}

// forget drops the text and the fields, which belong to the message. A connection may be idle for long.
func (h *head) forget() {
	h.method, h.path, h.authority, h.host, h.headers = nil, nil, nil, nil, nil
}

func (h *head) fail(why *Error) {
	if h.bad == nil {
		h.bad = why
	}
}

// pseudoOf are the pseudo-header fields of each kind of head.
var pseudoOf = [...]uint16{
	headRequest:  1<<fieldMethod | 1<<fieldScheme | 1<<fieldPath | 1<<fieldAuthority,
	headResponse: 1 << fieldStatus,
	headTrailers: 0,
}

// regular in head.pseudo: a field that is no pseudo-header field was seen.
const regular = 1

// field takes one field (RFC 9113 sections 8.2, 8.3).
func (h *head) field(f *hpack.Field) {
	k := fieldKind(f.Mark)
	if h.limits.Header -= len(f.Name) + len(f.Value) + fieldFraming; h.limits.Header < 0 && !h.goesOn(k) {
		h.over = true
		return
	}
	if k&(badName|badValue) != 0 {
		h.fail(ErrField)
		return
	}
	if k == endToEnd {
		h.pseudo |= regular
		h.append(f)
		return
	}
	if k <= fieldUnknownPseudo {
		bit := uint16(1) << k
		if pseudoOf[h.kind]&bit == 0 || h.pseudo&(bit|regular) != 0 {
			h.fail(ErrPseudo)
			return
		}
		h.pseudo |= bit
		h.never = h.never || f.NeverIndexed
		h.pseudoField(k, f.Value)
		return
	}
	h.pseudo |= regular
	h.special(k, f)
}

// goesOn reports whether a field of kind k is not the first with cookies. Several are one field of the
// message (RFC 9113 section 8.2.3).
func (h *head) goesOn(k fieldKind) bool { return k == fieldCookie && h.cookie >= 0 }

func (h *head) append(f *hpack.Field) {
	if h.limits.Headers--; h.limits.Headers < 0 {
		h.over = true
		return
	}
	h.headers = append(h.headers, protocol.Header{Name: f.Name, Value: f.Value, NeverIndexed: f.NeverIndexed})
}

func (h *head) pseudoField(k fieldKind, value []byte) {
	switch k {
	case fieldMethod:
		if h.method = value; len(value) == 0 || !protocol.TokenChar.All(value) {
			h.fail(ErrPseudo)
		}
	case fieldScheme:
		if s := string(value); s != string(protocol.SchemeHTTP) && s != string(protocol.SchemeHTTPS) {
			h.fail(ErrPseudo)
		}
		h.https = string(value) == string(protocol.SchemeHTTPS)
	case fieldPath:
		if h.path = value; len(value) == 0 || !protocol.TargetChar.All(value) {
			h.fail(ErrTarget)
		}
	case fieldAuthority:
		if h.authority = value; len(value) == 0 || !protocol.IsAuthority(value, false) {
			h.fail(ErrAuthority)
		}
	case fieldStatus:
		if len(value) != 3 || value[0] < '1' || value[0] > '5' || value[1]-'0' > 9 || value[2]-'0' > 9 {
			h.fail(ErrPseudo)
			return
		}
		h.status = int(value[0]-'0')*100 + int(value[1]-'0')*10 + int(value[2]-'0')
	}
}

// special takes a field that is neither end-to-end nor a pseudo-header field.
func (h *head) special(k fieldKind, f *hpack.Field) {
	if h.kind == headTrailers && k != fieldHop && k != fieldTE {
		if k != fieldHost && k != fieldLength && k != fieldExpect {
			h.append(f)
		}
		return // what is about the whole message means nothing in trailers
	}
	switch k {
	case fieldHost:
		if h.kind == headResponse {
			h.append(f) // without meaning
			return
		}
		if h.host != nil || len(f.Value) == 0 || !protocol.IsAuthority(f.Value, false) {
			h.fail(ErrAuthority)
		}
		h.host, h.never = f.Value, h.never || f.NeverIndexed
	case fieldLength:
		n := contentLength(f.Value)
		if n < 0 || h.length >= 0 {
			h.fail(ErrLength)
		}
		h.length = n
	case fieldCookie:
		if h.goesOn(k) {
			h.crumb = true
			h.limits.Header += len(f.Name) + fieldFraming - len(crumbSeparator)
			h.over = h.limits.Header < 0
			return
		}
		h.cookie = len(h.headers)
		h.append(f)
	case fieldExpect:
		if h.kind == headResponse {
			h.append(f)
			return
		}
		// Other expectations may be ignored (RFC 9110 section 10.1.1).
		h.expects = h.expects || protocol.EqualFold(f.Value, "100-continue")
	case fieldTE:
		if !protocol.EqualFold(f.Value, "trailers") {
			h.fail(ErrField)
		}
	case fieldHop:
		h.fail(ErrField)
	default:
		h.append(f)
	}
}

// contentLength reads 1*DIGIT, or returns -1.
func contentLength(b []byte) (n int64) {
	if len(b) == 0 {
		return -1
	}
	for _, c := range b {
		d := int64(c - '0')
		if d > 9 || n > (math.MaxInt64-d)/10 {
			return -1
		}
		n = n*10 + d
	}
	return n
}

// finish judges a whole head.
func (h *head) finish() {
	switch h.kind {
	case headRequest:
		h.finishRequest()
	case headResponse:
		if h.pseudo&(1<<fieldStatus) == 0 {
			h.fail(ErrPseudo)
		}
	}
}

func (h *head) finishRequest() {
	const all = 1<<fieldMethod | 1<<fieldScheme | 1<<fieldPath
	connect := string(h.method) == "CONNECT"
	switch pseudo := h.pseudo & all; {
	case connect && pseudo != 1<<fieldMethod, !connect && pseudo != all:
		h.fail(ErrPseudo)
	case connect && h.authority == nil:
		h.fail(ErrAuthority)
	case !connect && h.path[0] != '/' && (string(h.path) != "*" || string(h.method) != "OPTIONS"):
		h.fail(ErrTarget)
	case h.authority == nil && h.host == nil, h.authority != nil && h.host != nil && !h.sameHost():
		h.fail(ErrAuthority)
	}
	if h.authority == nil {
		h.authority = h.host
	}
}

// sameHost reports whether Host names what the authority does (RFC 9113 section 8.3.1). Both are
// brought into one form, unless they are the same already.
func (h *head) sameHost() bool {
	if bytes.Equal(h.authority, h.host) {
		return true
	}
	a := hostname.AppendAuthority(nil, h.authority, h.https)
	return bytes.Equal(a, hostname.AppendAuthority(nil, h.host, h.https))
}

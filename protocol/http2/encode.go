package http2

import (
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2/hpack"
)

// Indices of the static table.
const (
	indexAuthority = 1
	indexMethod    = 2
	indexGET       = 2
	indexPOST      = 3
	indexPath      = 4
	indexRootPath  = 4
	indexHTTP      = 6
	indexHTTPS     = 7
	indexStatus    = 8
	indexExpect    = 35
)

// begin appends the start of HEADERS and returns where it is.
func (o *output) begin(st *Stream, flags uint8) (at int) {
	at = len(o.out)
	o.out = o.enc.Begin(appendFrame(o.out, 0, frameHeaders, flags|flagEndHeaders, st.id))
	return at
}

// finish completes HEADERS that begin at out[at]. What exceeds a frame goes into CONTINUATION.
func (o *output) finish(at int) {
	if len(o.out)-at <= frameHead+maxFrame {
		putLength(o.out, at)
		return
	}
	rest := append([]byte(nil), o.out[at+frameHead+maxFrame:]...)
	o.out = o.out[:at+frameHead+maxFrame]
	putLength(o.out, at)
	o.out[at+4] &^= flagEndHeaders
	id := parseFrame(o.out[at:]).id
	for len(rest) > 0 {
		n, flags := min(len(rest), maxFrame), uint8(0)
		if n == len(rest) {
			flags = flagEndHeaders
		}
		o.out = append(appendFrame(o.out, n, frameContinuation, flags, id), rest[:n]...)
		rest = rest[n:]
	}
}

// field appends a field that is not about the connection or the framing, and drops others, and
// those that can't be sent. grpc reports whether it says that the content is gRPC.
func (o *output) field(f *protocol.Header) (grpc bool) {
	var h uint64
	if !f.NeverIndexed {
		var ok bool
		if o.out, h, ok = o.enc.AppendIndexed(o.out, f.Name, f.Value); ok {
			return len(f.Name) == len("content-type") && isGRPC(f)
		}
	}
	k := hpack.Repeating
	switch kindOf(f.Name) {
	case fieldHost, fieldLength, fieldExpect, fieldHop:
		return false
	case fieldTE:
		if !protocol.EqualFold(f.Value, "trailers") {
			return false
		}
	case fieldCookie, fieldSecret:
		k = hpack.Secret
	case fieldVarying:
		k = hpack.Varying
	case fieldContentType:
		grpc = isGRPC(f)
	}
	if !isText(f.Value) {
		return false
	}
	if f.NeverIndexed {
		k = hpack.Secret
	}
	o.out = o.enc.AppendLiteral(o.out, f.Name, f.Value, h, k, 0)
	return grpc
}

const grpcType = "application/grpc"

func isGRPC(f *protocol.Header) bool {
	return protocol.HasPrefixFold(f.Value, grpcType) && kindOf(f.Name) == fieldContentType
}

// pseudo appends a field whose name has this index, such as a pseudo-header field.
func (o *output) pseudo(name, value []byte, index int) {
	out, h, ok := o.enc.AppendIndexed(o.out, name, value)
	if !ok {
		out = o.enc.AppendLiteral(out, name, value, h, hpack.Repeating, index)
	}
	o.out = out
}

// secretPseudo is pseudo for a field that is never indexed.
func (o *output) secretPseudo(name, value []byte, index int) {
	o.out = o.enc.AppendLiteral(o.out, name, value, 0, hpack.Secret, index)
}

var (
	nameMethod    = []byte(":method")
	namePath      = []byte(":path")
	nameAuthority = []byte(":authority")
	nameStatus    = []byte(":status")
	nameExpect    = []byte("expect")
	valueContinue = []byte("100-continue")
)

func (o *output) index(i int) { o.out = append(o.out, 0x80|byte(i)) }

// requestHead appends the HEADERS of a request. length is the Content-Length, or negative for none. It is left out if the
// content is gRPC.
func (o *output) requestHead(st *Stream, req *protocol.Request, scheme string, length int64, flags uint8) {
	at := o.begin(st, flags)
	if string(req.Method) == "HEAD" {
		st.flags |= toHead
	}
	if req.NeverIndexed {
		o.secretTarget(req, scheme)
	} else {
		o.target(req, scheme)
	}
	o.headFields(req.Headers, length)
	if st.is(expects) {
		o.pseudo(nameExpect, valueContinue, indexExpect)
	}
	o.finish(at)
}

// target appends the pseudo-header fields of a request.
func (o *output) target(req *protocol.Request, scheme string) {
	connect := false
	switch string(req.Method) {
	case "GET":
		o.index(indexGET)
	case "POST":
		o.index(indexPOST)
	default:
		connect = string(req.Method) == "CONNECT"
		o.pseudo(nameMethod, req.Method, indexMethod)
	}
	if !connect {
		o.scheme(scheme)
		if string(req.Path) == "/" {
			o.index(indexRootPath)
		} else {
			o.pseudo(namePath, req.Path, indexPath)
		}
	}
	if len(req.Authority) > 0 {
		o.pseudo(nameAuthority, req.Authority, indexAuthority)
	}
}

// secretTarget is target for a request whose fields are never indexed. The scheme is ours.
func (o *output) secretTarget(req *protocol.Request, scheme string) {
	o.secretPseudo(nameMethod, req.Method, indexMethod)
	if string(req.Method) != "CONNECT" {
		o.scheme(scheme)
		o.secretPseudo(namePath, req.Path, indexPath)
	}
	if len(req.Authority) > 0 {
		o.secretPseudo(nameAuthority, req.Authority, indexAuthority)
	}
}

func (o *output) scheme(scheme string) {
	if scheme == string(protocol.SchemeHTTPS) {
		o.index(indexHTTPS)
	} else {
		o.index(indexHTTP)
	}
}

// responseHead appends the HEADERS of a response.
func (o *output) responseHead(st *Stream, res *protocol.Response, length int64, flags uint8) {
	at := o.begin(st, flags)
	o.status(res.Status)
	o.headFields(res.Headers, length)
	o.finish(at)
}

func (o *output) headFields(hs []protocol.Header, length int64) {
	grpc := false
	for i := range hs {
		grpc = o.field(&hs[i]) || grpc
	}
	if length < 0 || grpc {
		return
	}
	// A literal that is not indexed, with the name of static index 28.
	o.out = append(o.out, 0x0f, 28-0x0f, 0)
	from := len(o.out)
	o.out = strconv.AppendInt(o.out, length, 10)
	o.out[from-1] = byte(len(o.out) - from)
}

func (o *output) status(status int) {
	switch status {
	case 200:
		o.index(indexStatus)
	case 204:
		o.index(indexStatus + 1)
	case 206:
		o.index(indexStatus + 2)
	case 304:
		o.index(indexStatus + 3)
	case 400:
		o.index(indexStatus + 4)
	case 404:
		o.index(indexStatus + 5)
	case 500:
		o.index(indexStatus + 6)
	default:
		digits := [3]byte{byte('0' + status/100%10), byte('0' + status/10%10), byte('0' + status%10)}
		o.pseudo(nameStatus, digits[:], indexStatus)
	}
}

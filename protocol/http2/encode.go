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
func (w *writer) begin(st *Stream, flags uint8) (at int) {
	at = len(w.out)
	w.out = w.enc.Begin(appendFrame(w.out, 0, frameHeaders, flags|flagEndHeaders, st.id))
	return at
}

// finish completes HEADERS that begin at out[at]. What exceeds a frame goes into CONTINUATION.
func (w *writer) finish(at int) {
	if len(w.out)-at <= frameHead+maxFrame {
		putLength(w.out, at)
		return
	}
	rest := append([]byte(nil), w.out[at+frameHead+maxFrame:]...)
	w.out = w.out[:at+frameHead+maxFrame]
	putLength(w.out, at)
	w.out[at+4] &^= flagEndHeaders
	id := parseFrame(w.out[at:]).id
	for len(rest) > 0 {
		n, flags := min(len(rest), maxFrame), uint8(0)
		if n == len(rest) {
			flags = flagEndHeaders
		}
		w.out = append(appendFrame(w.out, n, frameContinuation, flags, id), rest[:n]...)
		rest = rest[n:]
	}
}

// field appends a field that is not about the connection or the framing, and drops others, and
// those that can't be sent. grpc reports whether it says that the content is gRPC.
func (w *writer) field(f *protocol.Header) (grpc bool) {
	var h uint64
	var ok bool
	if w.out, h, ok = w.enc.AppendIndexed(w.out, f.Name, f.Value); ok {
		return len(f.Name) == len("content-type") && isGRPC(f)
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
	w.out = w.enc.AppendLiteral(w.out, f.Name, f.Value, h, k, 0)
	return grpc
}

const grpcType = "application/grpc"

func isGRPC(f *protocol.Header) bool {
	return protocol.HasPrefixFold(f.Value, grpcType) && kindOf(f.Name) == fieldContentType
}

// pseudo appends a field whose name has this index, such as a pseudo-header field.
func (w *writer) pseudo(name, value []byte, index int) {
	out, h, ok := w.enc.AppendIndexed(w.out, name, value)
	if !ok {
		out = w.enc.AppendLiteral(out, name, value, h, hpack.Repeating, index)
	}
	w.out = out
}

var (
	nameMethod    = []byte(":method")
	namePath      = []byte(":path")
	nameAuthority = []byte(":authority")
	nameStatus    = []byte(":status")
	nameExpect    = []byte("expect")
	valueContinue = []byte("100-continue")
)

func (w *writer) index(i int) { w.out = append(w.out, 0x80|byte(i)) }

// requestHead appends the HEADERS of a request. length is the Content-Length: -1 for none, and
// less for one that is left out if the content is gRPC.
func (w *writer) requestHead(st *Stream, req *protocol.Request, scheme string, length int64, flags uint8) {
	at := w.begin(st, flags)
	connect := false
	switch string(req.Method) {
	case "GET":
		w.index(indexGET)
	case "POST":
		w.index(indexPOST)
	default:
		connect = string(req.Method) == "CONNECT"
		if string(req.Method) == "HEAD" {
			st.flags |= toHead
		}
		w.pseudo(nameMethod, req.Method, indexMethod)
	}
	if !connect {
		if scheme == string(protocol.SchemeHTTPS) {
			w.index(indexHTTPS)
		} else {
			w.index(indexHTTP)
		}
		if string(req.Path) == "/" {
			w.index(indexRootPath)
		} else {
			w.pseudo(namePath, req.Path, indexPath)
		}
	}
	if len(req.Authority) > 0 {
		w.pseudo(nameAuthority, req.Authority, indexAuthority)
	}
	w.headFields(req.Headers, length)
	if st.is(expects) {
		w.pseudo(nameExpect, valueContinue, indexExpect)
	}
	w.finish(at)
}

// responseHead appends the HEADERS of a response.
func (w *writer) responseHead(st *Stream, res *protocol.Response, length int64, flags uint8) {
	at := w.begin(st, flags)
	w.status(res.Status)
	w.headFields(res.Headers, length)
	w.finish(at)
}

func (w *writer) headFields(hs []protocol.Header, length int64) {
	grpc := false
	for i := range hs {
		grpc = w.field(&hs[i]) || grpc
	}
	if length < 0 || grpc {
		return
	}
	// A literal that is not indexed, with the name of static index 28.
	w.out = append(w.out, 0x0f, 28-0x0f, 0)
	from := len(w.out)
	w.out = strconv.AppendInt(w.out, length, 10)
	w.out[from-1] = byte(len(w.out) - from)
}

func (w *writer) status(status int) {
	switch status {
	case 200:
		w.index(indexStatus)
	case 204:
		w.index(indexStatus + 1)
	case 206:
		w.index(indexStatus + 2)
	case 304:
		w.index(indexStatus + 3)
	case 400:
		w.index(indexStatus + 4)
	case 404:
		w.index(indexStatus + 5)
	case 500:
		w.index(indexStatus + 6)
	default:
		digits := [3]byte{byte('0' + status/100%10), byte('0' + status/10%10), byte('0' + status%10)}
		w.pseudo(nameStatus, digits[:], indexStatus)
	}
}

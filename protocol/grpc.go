package protocol

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"
)

// GRPCCode is the outcome of a gRPC call: the number that grpc-status says.
type GRPCCode uint8

const (
	GRPCOK GRPCCode = iota
	GRPCCancelled
	GRPCUnknown
	GRPCInvalidArgument
	GRPCDeadlineExceeded
	GRPCNotFound
	GRPCAlreadyExists
	GRPCPermissionDenied
	GRPCResourceExhausted
	GRPCFailedPrecondition
	GRPCAborted
	GRPCOutOfRange
	GRPCUnimplemented
	GRPCInternal
	GRPCUnavailable
	GRPCDataLoss
	GRPCUnauthenticated
	GRPCOther // a number without a name, or none at all: to clients it means GRPCUnknown

	// GRPCCodes is the number of codes, to index arrays of counters.
	GRPCCodes = int(GRPCOther) + 1
)

// grpcNames are the names in settings, metrics and logs.
var grpcNames = [GRPCCodes]string{
	"ok", "cancelled", "unknown", "invalid-argument", "deadline-exceeded", "not-found", "already-exists", "permission-denied",
	"resource-exhausted", "failed-precondition", "aborted", "out-of-range", "unimplemented", "internal", "unavailable",
	"data-loss", "unauthenticated", "other",
}

// String returns the code's stable name.
func (c GRPCCode) String() string { return grpcNames[c] }

// GRPCCodeNamed returns the code of an error with this name, such as "unavailable".
func GRPCCodeNamed(name string) (c GRPCCode, ok bool) {
	i := slices.Index(grpcNames[:GRPCOther], name)
	return GRPCCode(max(i, 0)), i > int(GRPCOK)
}

// GRPCErrorNames returns the names of all errors that have one.
func GRPCErrorNames() []string { return grpcNames[GRPCOK+1 : GRPCOther] }

// Headers and trailers of gRPC.
const (
	HeaderGRPCStatus   = "grpc-status"
	HeaderGRPCMessage  = "grpc-message"               // percent-encoded text
	HeaderGRPCPushback = "grpc-retry-pushback-ms"     // of a response: when the client may try again
	HeaderGRPCPrevious = "grpc-previous-rpc-attempts" // of a request: attempts before this one
)

// Names and values that are added. They are shared and never written to.
var (
	NameGRPCStatus   = []byte(HeaderGRPCStatus)
	NameGRPCMessage  = []byte(HeaderGRPCMessage)
	NameGRPCPrevious = []byte(HeaderGRPCPrevious)

	// GRPCType is the Content-Type of responses without messages.
	GRPCType = []byte(grpcType)
)

const (
	grpcType    = "application/grpc"
	connectType = "application/connect+" // of streams; a call of one message is an ordinary request
)

// IsGRPC reports whether the headers are those of a gRPC call: its Content-Type is
// application/grpc, alone or with a format such as +proto. gRPC-Web is none, since its status is
// in the body.
func IsGRPC(hs []Header) bool {
	format, ok := typeAfter(hs, grpcType)
	return ok && (len(format) == 0 || format[0] == '+' || format[0] == ';' || format[0] == ' ')
}

// Interactive reports whether a message with the headers hs is part of a conversation, such as a
// call of gRPC or gRPC-Web, or a stream of the Connect protocol (https://connectrpc.com/docs/protocol):
// both sides send when they have something to say, and may pause for long. The body of any other must
// keep a pace.
func Interactive(hs []Header) bool {
	_, grpc := typeAfter(hs, grpcType)
	_, connect := typeAfter(hs, connectType)
	return grpc || connect
}

// typeAfter returns what follows prefix in the Content-Type.
func typeAfter(hs []Header, prefix string) (rest []byte, ok bool) {
	value := Find(hs, "content-type")
	if !HasPrefixFold(value, prefix) {
		return nil, false
	}
	return value[len(prefix):], true
}

// grpcPrefix is the length of what precedes each message in a body: a flag, and the message's length in 4 bytes.
const grpcPrefix = 5

// LeastGRPC returns how long a body with the headers hs that begins with part will be at least, in bytes: the length
// of its first message with the prefix, which says that length
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Length-Prefixed-Message). It is 0 if they don't
// tell: part is shorter than the prefix, or its first byte is no flag (0 or 1), or the type is not that of gRPC.
func LeastGRPC(hs []Header, part []byte) int64 {
	if len(part) < grpcPrefix || part[0] > 1 || !IsGRPC(hs) {
		return 0
	}
	return grpcPrefix + int64(binary.BigEndian.Uint32(part[1:]))
}

// GRPCStatus returns the outcome that a complete response says: in its trailers, or in its
// headers if it has neither trailers nor a body. ok is false if it says none.
func GRPCStatus(res *Response) (c GRPCCode, ok bool) {
	value := grpcField(res, HeaderGRPCStatus)
	if value == nil {
		return GRPCOK, false
	}
	return parseGRPCCode(value), true
}

// grpcField returns the value of a field that ends a call, or nil.
func grpcField(res *Response, name string) []byte {
	switch {
	case len(res.Trailers) > 0:
		return Find(res.Trailers, name)
	case res.Status == 200 && len(res.Body) == 0:
		return Find(res.Headers, name)
	}
	return nil
}

func parseGRPCCode(value []byte) GRPCCode {
	n := 0
	for _, c := range value {
		if n = n*10 + int(c) - '0'; c < '0' || c > '9' || n >= int(GRPCOther) {
			return GRPCOther
		}
	}
	if len(value) == 0 {
		return GRPCOther
	}
	return GRPCCode(n)
}

// GRPCOfHTTP returns the code that clients make of a response whose HTTP status is not 200, and
// which says no code.
func GRPCOfHTTP(status int) GRPCCode {
	switch status {
	case 400:
		return GRPCInternal
	case 401:
		return GRPCUnauthenticated
	case 403:
		return GRPCPermissionDenied
	case 404:
		return GRPCUnimplemented
	case 429, 502, 503, 504:
		return GRPCUnavailable
	}
	return GRPCUnknown
}

// GRPCPushback returns when a client may try again after a response: not before d. d < 0 means
// never, which a malformed value means as well (gRFC A6). ok is false if the response does not say.
func GRPCPushback(res *Response) (d time.Duration, ok bool) {
	value := Find(res.Trailers, HeaderGRPCPushback)
	if value == nil {
		value = Find(res.Headers, HeaderGRPCPushback)
	}
	if value == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil {
		return -1, true
	}
	return time.Duration(n) * time.Millisecond, true
}

// maxPrevious bounds the attempts that are believed of a client. No client makes as many.
const maxPrevious = 1000

// AddGRPCPrevious adds to the number of attempts that came before a request, as its headers say it. There is no header
// for 0. The new value is appended to text, which must live as long as the headers.
func AddGRPCPrevious(hs []Header, more int, text []byte) []Header {
	i := slices.IndexFunc(hs, func(h Header) bool { return EqualFold(h.Name, HeaderGRPCPrevious) })
	if i < 0 {
		i, hs = len(hs), append(hs, Header{Name: NameGRPCPrevious})
	}
	said, err := strconv.ParseUint(string(hs[i].Value), 10, 32)
	if err != nil {
		said = 0
	}
	sum := int64(min(said, maxPrevious)) + int64(more)
	if sum <= 0 {
		return slices.Delete(hs, i, i+1)
	}
	hs[i].Value = strconv.AppendInt(text, sum, 10)
	return hs
}

const upperHex = "0123456789ABCDEF"

// AppendGRPCMessage appends text as a value of grpc-message: bytes other than printable ASCII, and
// the percent sign, are encoded.
func AppendGRPCMessage(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

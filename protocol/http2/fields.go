package http2

import (
	"encoding/binary"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2/hpack"
)

// The rules for values are those of protocol/http1, which a codec may not import: what is passed on must be
// safe to write there. TestRequestRules compares them.

// nameChar is the set of bytes allowed in names that we receive, which have no capitals.
var nameChar = protocol.NewCharTable("!#$%&'*+-.^_`|~", protocol.Alphanumeric[:10], protocol.Alphanumeric[36:])

// isText reports whether b has no control character other than HTAB.
func isText(b []byte) bool {
	if len(b) < 8 {
		return isPlain(b)
	}
	for i := 0; i < len(b)-8; i += 8 {
		if !isPlainWord(b[i : i+8]) {
			return false
		}
	}
	return isPlainWord(b[len(b)-8:])
}

// isPlainWord is isPlain for 8 bytes.
func isPlainWord(b []byte) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	// Each byte below 0x20 or equal to 0x7f sets its bit, and some others may.
	x := binary.LittleEndian.Uint64(b)
	return ((x-0x20*each)|(x+each))&^x&high == 0 || isPlain(b)
}

func isPlain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isValue reports whether b may be a field value: text without white space at its ends.
func isValue(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	first, last := b[0], b[len(b)-1]
	return first != ' ' && first != '\t' && last != ' ' && last != '\t' && isText(b)
}

// fieldKind is what a field is to the codec. With badName or badValue it is a mark of hpack.
type fieldKind uint8

const (
	endToEnd fieldKind = iota
	fieldMethod
	fieldScheme
	fieldPath
	fieldAuthority
	fieldStatus
	fieldUnknownPseudo
	fieldHost
	fieldLength
	fieldCookie
	fieldExpect
	fieldContentType
	fieldTE
	fieldHop               // of a connection
	fieldSecret            // ours: must not be indexed
	fieldVarying           // ours: not worth a place in the table
	badValue     fieldKind = 0x40
	badName      fieldKind = 0x80
)

var marks = hpack.NewMarks(markName, markValue, uint8(badValue))

func markName(name []byte) uint8 {
	if len(name) > 0 && name[0] == ':' {
		switch string(name) {
		case ":method":
			return uint8(fieldMethod)
		case ":scheme":
			return uint8(fieldScheme)
		case ":path":
			return uint8(fieldPath)
		case ":authority":
			return uint8(fieldAuthority)
		case ":status":
			return uint8(fieldStatus)
		}
		return uint8(fieldUnknownPseudo)
	}
	if len(name) == 0 || !nameChar.All(name) {
		return uint8(badName)
	}
	return uint8(kindOf(name))
}

func markValue(value []byte) uint8 {
	if isValue(value) {
		return 0
	}
	return uint8(badValue)
}

// kindOf returns the kind of a field; the name's case does not count.
func kindOf(name []byte) fieldKind {
	switch len(name) {
	case 2:
		return kindIf(name, "te", fieldTE)
	case 4:
		switch name[0] | 0x20 {
		case 'h':
			return kindIf(name, "host", fieldHost)
		case 'd':
			return kindIf(name, "date", fieldVarying)
		}
	case 6:
		switch name[0] | 0x20 {
		case 'c':
			return kindIf(name, "cookie", fieldCookie)
		case 'e':
			return kindIf(name, "expect", fieldExpect)
		}
	case 7:
		return kindIf(name, "upgrade", fieldHop)
	case 10:
		switch name[0] | 0x20 {
		case 'c':
			return kindIf(name, "connection", fieldHop)
		case 'k':
			return kindIf(name, "keep-alive", fieldHop)
		case 's':
			return kindIf(name, "set-cookie", fieldSecret)
		}
	case 11:
		return kindIf(name, "traceparent", fieldVarying)
	case 12:
		switch name[0] | 0x20 {
		case 'c':
			return kindIf(name, "content-type", fieldContentType)
		case 'g':
			return kindIf(name, "grpc-timeout", fieldVarying)
		case 'x':
			return kindIf(name, "x-request-id", fieldVarying)
		}
	case 13:
		return kindIf(name, "authorization", fieldSecret)
	case 14:
		return kindIf(name, "content-length", fieldLength)
	case 16:
		return kindIf(name, "proxy-connection", fieldHop)
	case 17:
		return kindIf(name, "transfer-encoding", fieldHop)
	case 19:
		switch name[0] | 0x20 {
		case 'p':
			return kindIf(name, "proxy-authorization", fieldSecret)
		case 'x':
			return kindIf(name, "x-remora-timeout-ms", fieldVarying)
		}
	}
	return endToEnd
}

func kindIf(name []byte, lower string, k fieldKind) fieldKind {
	if string(name) == lower || protocol.EqualFold(name, lower) {
		return k
	}
	return endToEnd
}

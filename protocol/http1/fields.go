package http1

import (
	"bytes"
	"math"

	"github.com/remora-proxy/remora/protocol"
)

type fieldKind uint8

const (
	endToEnd        fieldKind = iota
	fieldHost                 // requests: routing
	fieldExpect               // requests: consumed by this hop
	fieldLength               // framing
	fieldCoding               // framing
	fieldConnection           // the connection's options
	fieldUpgrade              // the connection's next protocol
	fieldHop                  // other fields of one connection
)

// kindOf compares two names with their usual spelling first, because nearly every message has them.
func kindOf(name []byte) fieldKind {
	switch len(name) {
	case 2:
		return kindIf(name, "te", fieldHop)
	case 4:
		if string(name) == "Host" {
			return fieldHost
		}
		return kindIf(name, "host", fieldHost)
	case 6:
		return kindIf(name, "expect", fieldExpect)
	case 7:
		return kindIf(name, "upgrade", fieldUpgrade)
	case 10:
		if name[0]|0x20 == 'c' {
			return kindIf(name, "connection", fieldConnection)
		}
		return kindIf(name, "keep-alive", fieldHop)
	case 14:
		if string(name) == "Content-Length" {
			return fieldLength
		}
		if name[0]|0x20 == 'h' {
			return kindIf(name, "http2-settings", fieldHop) // also if Connection does not name it
		}
		return kindIf(name, "content-length", fieldLength)
	case 16:
		return kindIf(name, "proxy-connection", fieldHop)
	case 17:
		return kindIf(name, "transfer-encoding", fieldCoding)
	}
	return endToEnd
}

func kindIf(name []byte, lower string, k fieldKind) fieldKind {
	if protocol.EqualFold(name, lower) {
		return k
	}
	return endToEnd
}

// options are the connection options with a meaning to the codec.
type options uint8

const (
	optClose options = 1 << iota
	optKeepAlive
	optUpgrade
	optNominated // names of fields to remove
)

// maxOptions limits the options in Connection, and with it the cost of removing the fields
// that they nominate. Browsers and proxies send one to three.
const maxOptions = 32

// fields collects what the field lines of one head say about framing and connection.
type fields struct {
	minor   int
	request bool

	host        []byte
	hosts       int
	length      int64 // of Content-Length; -1 means none
	coding      bool  // Transfer-Encoding: chunked
	expect      bool
	upgrades    int    // Upgrade fields
	protocols   []byte // of the last Upgrade field
	options     options
	optionCount int
	nominated   []byte // the same as Head.nominated
}

// field reads the field line at b[i:] and returns the index behind it, or ErrIncomplete if b
// ends before the line.
func field(b []byte, i int) (name, value []byte, next int, err error) {
	colon := tokenEnd(b, i)
	if colon == len(b) || b[colon] != ':' || colon == i {
		return nil, nil, 0, badName(b[i:], colon-i)
	}
	from := colon + 1
	for from < len(b) && isBlank(b[from]) {
		from++
	}
	end := textEnd(b, from)
	switch {
	case end+1 >= len(b):
		return nil, nil, 0, ErrIncomplete
	case b[end] != '\r':
		return nil, nil, 0, ErrBadFieldValue
	case b[end+1] != '\n':
		return nil, nil, 0, ErrBareCR
	}
	next = end + 2
	for end > from && isBlank(b[end-1]) {
		end--
	}
	return b[i:colon], b[from:end], next, nil
}

// badName returns the error for a line whose name is empty, or ends at i without a colon.
func badName(line []byte, i int) error {
	switch {
	case i+1 >= len(line):
		return ErrIncomplete
	case i == 0 && isBlank(line[0]):
		return ErrObsFold
	case i > 0 && isBlank(line[i]):
		return ErrSpaceBeforeColon
	case line[i] == '\r' && line[i+1] != '\n':
		return ErrBareCR
	}
	return ErrBadFieldName
}

// parse reads the field lines from b[i] on and appends the end-to-end fields to hs. n is the
// index behind the empty line that ends them. Without that the error is ErrIncomplete.
func (f *fields) parse(b []byte, i int, hs []protocol.Header, limit int) (_ []protocol.Header, n int, err error) {
	for count := 0; i+1 >= len(b) || b[i] != '\r' || b[i+1] != '\n'; {
		if count++; count > limit {
			return hs, 0, ErrTooManyHeaders
		}
		name, value, next, err := field(b, i)
		if err != nil {
			return hs, 0, err
		}
		i = next
		if k := kindOf(name); k != endToEnd {
			keep, err := f.consume(k, value)
			if err != nil {
				return hs, 0, err
			}
			if !keep {
				continue
			}
		}
		hs = append(hs, protocol.Header{Name: name, Value: value, Valid: true})
	}
	if f.options&optNominated != 0 {
		if f.coding {
			f.nominated = nominations(hs)
		}
		hs = removeNominated(hs)
	}
	return hs, i + 2, nil
}

// consume records a field that is not end-to-end. keep means that it stays among the headers
// until the nominated fields are removed.
func (f *fields) consume(k fieldKind, value []byte) (keep bool, err error) {
	switch k {
	case fieldHost:
		f.host = value
		f.hosts++
		return !f.request, nil // without meaning in a response: forwarded unchanged
	case fieldExpect:
		if !f.request {
			return true, nil
		}
		f.expect = true
		if !protocol.EqualFold(value, "100-continue") {
			return false, ErrExpectationFailed
		}
	case fieldLength:
		if f.length >= 0 {
			return false, ErrDuplicateLength
		}
		f.length, err = contentLength(value)
	case fieldCoding:
		if f.coding {
			return false, ErrDuplicateCoding
		}
		f.coding = true
		if !protocol.EqualFold(value, "chunked") {
			return false, ErrUnknownCoding
		}
	case fieldConnection:
		err = f.connection(value)
		keep = f.options&optNominated != 0 // until removeNominated has read it
	case fieldUpgrade:
		f.upgrades++
		f.protocols = value
	}
	return keep, err
}

// contentLength reads 1*DIGIT (RFC 9110 section 8.6).
func contentLength(b []byte) (n int64, err error) {
	if len(b) == 0 {
		return -1, ErrBadContentLength
	}
	for _, c := range b {
		d := int64(c - '0')
		if d > 9 || n > (math.MaxInt64-d)/10 {
			return -1, ErrBadContentLength
		}
		n = n*10 + d
	}
	return n, nil
}

// connection reads the options of one Connection field (RFC 9110 section 7.6.1).
func (f *fields) connection(list []byte) error {
	for more := true; more; {
		var option []byte
		option, list, more = nextElement(list)
		if f.optionCount++; f.optionCount > maxOptions {
			return ErrBadConnection
		}
		switch {
		case len(option) == 0: // RFC 9110 section 5.6.1.2: ignore empty elements
		case protocol.EqualFold(option, "close"):
			f.options |= optClose
		case protocol.EqualFold(option, "keep-alive"):
			f.options |= optKeepAlive
		case protocol.EqualFold(option, "upgrade"):
			f.options |= optUpgrade
		case !protocol.TokenChar.All(option):
			return ErrBadConnection
		default:
			f.options |= optNominated
		}
	}
	return nil
}

func nextElement(list []byte) (element, rest []byte, more bool) {
	element = list
	if i := bytes.IndexByte(list, ','); i >= 0 {
		element, rest, more = list[:i], list[i+1:], true
	}
	for len(element) > 0 && isBlank(element[0]) {
		element = element[1:]
	}
	for len(element) > 0 && isBlank(element[len(element)-1]) {
		element = element[:len(element)-1]
	}
	return element, rest, more
}

// keepAlive applies RFC 9112 section 9.3. A sidecar is a gateway and acts as the origin
// server, so HTTP/1.0 clients may also ask for persistence.
func (f *fields) keepAlive() bool {
	return f.options&optClose == 0 && (f.minor == 1 || f.options&optKeepAlive != 0)
}

// checkFraming refuses what two recipients could read differently (RFC 9112 sections 6.1,
// 6.3).
func (f *fields) checkFraming() error {
	switch {
	case f.coding && f.minor == 0:
		return ErrCodingInHTTP10
	case f.coding && f.length >= 0:
		return ErrLengthAndCoding
	}
	return nil
}

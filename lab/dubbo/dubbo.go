// Package dubbo is the part of the Dubbo 2 protocol that the lab's replica needs: calls in,
// responses out, values unchanged. It shares no code with protocol/dubbo: a peer with the
// sidecar's codec would have the same mistakes. It does not use dubbo-go-hessian2, which
// allocates as much memory as a length in a call says, and so lets a bad call end the process.
package dubbo

import (
	"encoding/binary"
	"errors"
	"unicode/utf16"
)

// Serialization ids.
const (
	Hessian2 = 2
	Fastjson = 6
)

// Statuses of responses.
const (
	StatusOK            = 20
	StatusBadRequest    = 40
	StatusPoolExhausted = 100
)

// The errors of Parse. After ErrMalformed the connection must be closed. A call with ErrBody or
// ErrSerialization may get a response like any other.
var (
	ErrIncomplete    = errors.New("dubbo: call incomplete")
	ErrMalformed     = errors.New("dubbo: no call, or one past the limit")
	ErrBody          = errors.New("dubbo: body malformed")
	ErrSerialization = errors.New("dubbo: unknown serialization")
)

const MaxBody = 16 << 20 // bytes

const (
	headerSize = 16
	magic      = 0xdabb

	flagRequest       = 0x80
	flagTwoWay        = 0x40
	flagEvent         = 0x20
	maskSerialization = 0x1f
)

// The order of the values of a body. The last value is the attachments.
const (
	valueVersion = iota // of Dubbo
	valuePath
	valueServiceVersion
	valueMethod
	valueTypes // of the parameters
	valuesBeforeArgs
)

// Call is one message from a client. Its slices alias the input.
type Call struct {
	ID            uint64
	Serialization byte
	TwoWay        bool // it wants a response
	Event         bool // a heartbeat, which has no method and no arguments
	Method        string
	Args          [][]byte // as they were serialized

	format format
	values [][]byte
}

// format is how values are serialized.
type format interface {
	split(dst [][]byte, body []byte) (values [][]byte, ok bool)
	text(value []byte) (s string, ok bool)
	null() string
	appendText(dst []byte, s string) []byte
	appendInt(dst []byte, n int32) []byte
	appendRaw(dst, value []byte) []byte // a value of split, or null
}

var formats = map[byte]format{Hessian2: hessian{}, Fastjson: fastjson{}}

// The first value of a result says what the second one is.
const (
	resultValue = 1
	resultNull  = 2
)

// Parse parses the call at the start of b and returns its length, also with ErrBody and
// ErrSerialization.
func (c *Call) Parse(b []byte) (n int, err error) {
	if len(b) < headerSize {
		return 0, ErrIncomplete
	}
	flags, size := b[2], binary.BigEndian.Uint32(b[12:])
	if binary.BigEndian.Uint16(b) != magic || flags&flagRequest == 0 || size > MaxBody {
		return 0, ErrMalformed
	}
	n = headerSize + int(size)
	if len(b) < n {
		return 0, ErrIncomplete
	}
	*c = Call{
		ID:            binary.BigEndian.Uint64(b[4:]),
		Serialization: flags & maskSerialization,
		TwoWay:        flags&flagTwoWay != 0,
		Event:         flags&flagEvent != 0,
		values:        c.values[:0],
	}
	var known bool
	if c.format, known = formats[c.Serialization]; !known {
		c.format = hessian{} // the error response needs one
	}
	switch {
	case c.Event:
		return n, nil
	case !known:
		return n, ErrSerialization
	}
	return n, c.parseBody(b[headerSize:n])
}

func (c *Call) parseBody(body []byte) error {
	var ok bool
	if c.values, ok = c.format.split(c.values, body); !ok || len(c.values) <= valuesBeforeArgs {
		return ErrBody
	}
	if c.Method, ok = c.format.text(c.values[valueMethod]); !ok {
		return ErrBody
	}
	c.Args = c.values[valuesBeforeArgs : len(c.values)-1]
	return nil
}

// Text returns the first argument if it is a string.
func (c *Call) Text() (s string, ok bool) {
	if len(c.Args) == 0 {
		return "", false
	}
	return c.format.text(c.Args[0])
}

// AppendInt appends a response whose result is n.
func (c *Call) AppendInt(dst []byte, n int32) []byte {
	return c.appendResponse(dst, StatusOK, func(dst []byte) []byte {
		return c.format.appendInt(c.format.appendInt(dst, resultValue), n)
	})
}

// AppendEcho appends a response whose result is the first argument, or null without one.
func (c *Call) AppendEcho(dst []byte) []byte {
	return c.appendResponse(dst, StatusOK, func(dst []byte) []byte {
		if len(c.Args) == 0 || string(c.Args[0]) == c.format.null() {
			return c.format.appendInt(dst, resultNull)
		}
		// References in the argument stay valid: the values before it, and the integer before
		// a result, can't be referred to.
		return c.format.appendRaw(c.format.appendInt(dst, resultValue), c.Args[0])
	})
}

// AppendError appends a response with a status other than OK.
func (c *Call) AppendError(dst []byte, status byte, message string) []byte {
	return c.appendResponse(dst, status, func(dst []byte) []byte { return c.format.appendText(dst, message) })
}

// AppendHeartbeat appends the response to an event.
func (c *Call) AppendHeartbeat(dst []byte) []byte {
	return c.appendResponse(dst, StatusOK, func(dst []byte) []byte {
		return c.format.appendRaw(dst, []byte(c.format.null()))
	})
}

// appendResponse appends nothing for a call that wants no response.
func (c *Call) appendResponse(dst []byte, status byte, appendBody func([]byte) []byte) []byte {
	if !c.TwoWay {
		return dst
	}
	flags := c.Serialization
	if c.Event {
		flags |= flagEvent
	}
	at := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, magic)
	dst = append(dst, flags, status)
	dst = binary.BigEndian.AppendUint64(dst, c.ID)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendBody(dst)
	binary.BigEndian.PutUint32(dst[at+12:], uint32(len(dst)-at-headerSize))
	return dst
}

// HashCode returns Java's String.hashCode of s, which is valid UTF-8.
func HashCode(s string) (h int32) {
	var units [2]uint16
	for _, r := range s {
		for _, unit := range utf16.AppendRune(units[:0], r) {
			h = 31*h + int32(unit)
		}
	}
	return h
}

// Package wire is the part of HTTP/1.1 (RFC 9112) and HTTP/2 (RFC 9113) that the lab needs. It
// shares no code with protocol: a peer with the sidecar's parser would have the same mistakes.
package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// The errors of the parsers. After any but ErrIncomplete the connection must be closed.
var (
	ErrIncomplete = errors.New("wire: message incomplete")
	ErrMalformed  = errors.New("wire: message malformed")
	ErrTooLarge   = errors.New("wire: message too large")
)

// Limits of one message.
const (
	MaxHead = 64 << 10
	MaxBody = 16 << 20
)

// Message is one request or response, and the state of its parser: no input is scanned twice
// when more of it arrives. Its slices are valid until the next Reset, except Body.
type Message struct {
	Method, Target []byte // of a request
	Status         int    // of a response
	Nonce          []byte // value of x-nonce
	Refusal        []byte // value of x-remora-error
	Key            []byte // value of x-key
	Close          bool   // the connection ends after this message
	Continue       bool   // the sender waits for 100 Continue before the body
	Body           []byte // valid until the input or the Message changes

	skipped int // length of interim responses before it; the fields below count from there
	scanned int // input before it has no end of the head
	head    int // length of the head; 0 means not complete yet
	length  int // of the body; -1 means unknown
	chunked bool
	old     bool // HTTP/1.0
	host    bool
	pos     int    // chunked: input before it is decoded
	decoded []byte // chunked: the body so far
}

// Reset makes m ready for the next message of its connection.
func (m *Message) Reset() {
	*m = Message{
		Method: m.Method[:0], Target: m.Target[:0], Nonce: m.Nonce[:0],
		Refusal: m.Refusal[:0], Key: m.Key[:0], decoded: m.decoded[:0], length: -1,
	}
}

// ParseRequest parses the request at the start of b. b must begin with the input of earlier
// calls since the last Reset. It returns the request's length, or ErrIncomplete.
func (m *Message) ParseRequest(b []byte) (n int, err error) {
	if m.head == 0 {
		if err := m.parseHead(b, (*Message).requestLine); err != nil {
			return 0, err
		}
		if !m.host && !m.old {
			return 0, ErrMalformed
		}
		m.length = max(m.length, 0)
	}
	return m.body(b)
}

// ParseResponse is ParseRequest for a response, to HEAD if toHead is set. It skips 1xx responses.
func (m *Message) ParseResponse(b []byte, toHead bool) (n int, err error) {
	for m.head == 0 {
		skipped := m.skipped
		if err := m.parseHead(b[skipped:], (*Message).statusLine); err != nil {
			return 0, err
		}
		switch {
		case m.Status < 200:
			skipped += m.head
			m.Reset()
			m.skipped = skipped
		case toHead || m.Status == 204 || m.Status == 304:
			m.length, m.chunked = 0, false
		case m.length < 0 && !m.chunked:
			return 0, ErrMalformed // the connection ends it, which no peer of the lab does
		}
	}
	if n, err = m.body(b[m.skipped:]); err != nil {
		return 0, err
	}
	return m.skipped + n, nil
}

// InHead reports whether the head is not complete yet.
func (m *Message) InHead() bool { return m.head == 0 }

func (m *Message) parseHead(b []byte, startLine func(*Message, []byte) bool) error {
	from := max(0, m.scanned-3) // the end may overlap scanned input
	end := bytes.Index(b[min(from, len(b)):], []byte("\r\n\r\n"))
	if end < 0 {
		m.scanned = len(b)
		return unfinished(len(b), MaxHead)
	}
	end += from
	if end > MaxHead {
		return ErrTooLarge
	}
	line, rest, _ := bytes.Cut(b[:end+2], []byte("\r\n"))
	if !startLine(m, line) {
		return ErrMalformed
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if err := m.field(line); err != nil {
			return err
		}
	}
	if m.chunked && m.length >= 0 {
		return ErrMalformed // RFC 9112 section 6.3: do not guess which one counts
	}
	m.head = end + 4
	m.pos = m.head
	return nil
}

func (m *Message) requestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	m.Method = append(m.Method[:0], method...)
	m.Target = append(m.Target[:0], target...)
	return ok && ok2 && len(method) > 0 && len(target) > 0 && m.version(version)
}

func (m *Message) statusLine(line []byte) bool {
	version, rest, _ := bytes.Cut(line, []byte(" "))
	if len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return false
	}
	status, ok := number(rest[:3], 10)
	m.Status = status
	return ok && status >= 100 && m.version(version)
}

func (m *Message) version(v []byte) bool {
	switch string(v) {
	case "HTTP/1.1":
		return true
	case "HTTP/1.0":
		m.old, m.Close = true, true
		return true
	}
	return false
}

func (m *Message) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t\r\n\x00") || bytes.ContainsAny(value, "\r\n\x00") {
		return ErrMalformed
	}
	value = bytes.Trim(value, " \t")
	switch {
	case is(name, "content-length"):
		n, ok := number(value, 10)
		if !ok || m.length >= 0 && m.length != n {
			return ErrMalformed
		}
		if n > MaxBody {
			return ErrTooLarge
		}
		m.length = n
	case is(name, "transfer-encoding"):
		if m.chunked || !is(value, "chunked") {
			return ErrMalformed
		}
		m.chunked = true
	case is(name, "connection"):
		for option := range bytes.SplitSeq(value, []byte(",")) {
			m.Close = m.Close || is(bytes.Trim(option, " \t"), "close")
		}
	case is(name, "expect"):
		m.Continue = is(value, "100-continue")
	case is(name, "host"):
		if m.host {
			return ErrMalformed
		}
		m.host = true
	case is(name, "x-nonce"):
		m.Nonce = append(m.Nonce[:0], value...)
	case is(name, "x-key"):
		m.Key = append(m.Key[:0], value...)
	case is(name, "x-remora-error"):
		m.Refusal = append(m.Refusal[:0], value...)
	}
	return nil
}

func (m *Message) body(b []byte) (n int, err error) {
	if m.chunked {
		return m.chunks(b)
	}
	end := m.head + m.length
	if len(b) < end {
		return 0, ErrIncomplete
	}
	m.Body = b[m.head:end]
	return end, nil
}

// chunks decodes the complete chunks of b (RFC 9112 section 7.1).
func (m *Message) chunks(b []byte) (n int, err error) {
	for {
		rest := b[m.pos:]
		eol := bytes.Index(rest, []byte("\r\n"))
		if eol < 0 {
			return 0, unfinished(len(rest), 4096)
		}
		digits, _, _ := bytes.Cut(rest[:eol], []byte(";"))
		size, ok := number(bytes.TrimRight(digits, " \t"), 16)
		switch {
		case !ok:
			return 0, ErrMalformed
		case len(m.decoded)+size > MaxBody:
			return 0, ErrTooLarge
		case size == 0:
			return m.trailers(b, m.pos+eol+2)
		}
		end := eol + 2 + size
		if len(rest) < end+2 {
			return 0, ErrIncomplete
		}
		if rest[end] != '\r' || rest[end+1] != '\n' {
			return 0, ErrMalformed
		}
		m.decoded = append(m.decoded, rest[eol+2:end]...)
		m.pos += end + 2
	}
}

func (m *Message) trailers(b []byte, pos int) (n int, err error) {
	for start := pos; ; {
		eol := bytes.Index(b[pos:], []byte("\r\n"))
		if eol < 0 {
			return 0, unfinished(len(b)-start, MaxHead)
		}
		pos += eol + 2
		if eol == 0 {
			m.Body = m.decoded
			return pos, nil
		}
	}
}

// unfinished returns the error of a part without an end, of which n bytes are there.
func unfinished(n, limit int) error {
	if n > limit {
		return ErrTooLarge
	}
	return ErrIncomplete
}

// number parses one to eight digits. More digits exceed the limits.
func number(b []byte, base int) (int, bool) {
	n, err := strconv.ParseUint(string(b), base, 32)
	return int(n), err == nil && len(b) <= 8
}

// is reports whether b equals lower, which is in lower case, regardless of ASCII case.
func is(b []byte, lower string) bool {
	return len(b) == len(lower) && bytes.EqualFold(b, []byte(lower))
}

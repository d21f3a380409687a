package dubbo

import (
	"bytes"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Invocation holds the parts of a call that routing needs. Its slices alias the parsed body,
// and are empty if the caller sent null or nothing. It is reusable, and keeps its memory.
type Invocation struct {
	DubboVersion []byte        // version of the caller's protocol, such as 2.0.2
	Path         []byte        // service as the provider exports it, nearly always the interface
	Version      []byte        // of the service; empty means none, and so does 0.0.0
	Method       []byte        // its name, without types
	Types        []byte        // JVM descriptors of the parameters, concatenated
	Group        []byte        // of the service
	Timeout      time.Duration // of the caller, the shorter of its timeouts; 0 means none
	TraceParent  []byte        // the attachment of that name (W3C Trace Context), unchecked

	timeouts [2]timeout // the attachments timeout and _TO
	reader   hessianReader
}

// Parse reads the body of a request. It skips the arguments, and checks them only as far as it
// must to find what follows them. As in the provider, an attachment overrides an earlier
// value. Input that could be understood differently by the provider is refused.
func (inv *Invocation) Parse(serialization byte, body []byte) error {
	*inv = Invocation{reader: inv.reader}
	var ok bool
	switch serialization {
	case Fastjson:
		ok = inv.parseFastjson(body)
	case Hessian2:
		ok = inv.parseHessian2(body)
		inv.reader.b = nil // the body belongs to the caller
	default:
		return ErrSerialization
	}
	if !ok || len(inv.Path) == 0 || len(inv.Method) == 0 {
		return ErrBadInvocation
	}
	if string(inv.Version) == noVersion {
		inv.Version = nil
	}
	for _, t := range inv.timeouts {
		if t.time > 0 && (inv.Timeout == 0 || t.time < inv.Timeout) {
			inv.Timeout = t.time
		}
	}
	return nil
}

// timeout is an attachment that says how long the caller waits, in milliseconds.
type timeout struct {
	time time.Duration // 0 means none
	text []byte        // the value in the body: digits, or a number of hessian2
	zero byte          // the digit 0; 0 means a number of hessian2
	bare bool          // a number of JSON, which can't begin with 0
}

// timeout returns where the attachment with this name is kept, or nil. Providers apply _TO to
// the calls that they make for this one.
func (inv *Invocation) timeout(name []byte) *timeout {
	switch string(name) {
	case "timeout":
		return &inv.timeouts[0]
	case "_TO":
		return &inv.timeouts[1]
	}
	return nil
}

// SetTimeLeft parses the body of a request, and shortens the timeouts in it to left, in place:
// the length stays. A body that is no call stays as it is.
func (inv *Invocation) SetTimeLeft(serialization byte, body []byte, left time.Duration) {
	if inv.Parse(serialization, body) != nil {
		return
	}
	for _, t := range inv.timeouts {
		if t.time > 0 {
			t.lower(t.time.Milliseconds() - protocol.Milliseconds(left))
		}
	}
}

// lower subtracts n. The forms of hessian2 are a constant plus the number, to the base of 256.
func (t *timeout) lower(n int64) {
	base := int64(256)
	if t.zero != 0 {
		base = 10
	}
	for i := len(t.text) - 1; n > 0; i-- {
		digit := int64(t.text[i]) - n%base
		if n /= base; digit < int64(t.zero) {
			digit += base
			n++
		}
		t.text[i] = byte(digit)
	}
	for i := 0; t.bare && t.text[i] == t.zero && i < len(t.text)-1; i++ {
		t.text[i] = ' '
	}
}

// noVersion is the version that hessian2 callers send for a service without a version.
const noVersion = "0.0.0"

// parseHead reads the fields before the attachments in both serializations: five names, and an
// argument for each type.
func (inv *Invocation) parseHead(name func() []byte, skip func()) bool {
	for _, field := range [...]*[]byte{&inv.DubboVersion, &inv.Path, &inv.Version, &inv.Method, &inv.Types} {
		*field = name()
	}
	n, ok := countTypes(inv.Types)
	for range n {
		skip()
	}
	return ok
}

func (inv *Invocation) parseHessian2(body []byte) bool {
	r := &inv.reader
	r.reset(body)
	if !inv.parseHead(r.nullableName, r.skip) {
		return false
	}
	switch t := r.next(); t.kind {
	case tokenNull:
	case tokenMap:
		for left := r.enter(t); r.element(&left); {
			inv.readAttachment(r)
		}
	default:
		return false
	}
	return !r.bad && r.i == len(r.b)
}

func (inv *Invocation) readAttachment(r *hessianReader) {
	name := r.next()
	r.skipRest(name)
	value := r.next()
	r.skipRest(value)
	switch {
	case name.kind != tokenString:
	case name.more:
		r.fail() // the name may be one that selects the service
	case value.kind == tokenString && !value.more || value.kind == tokenNull:
		inv.attach(name.text, value.text)
	case selectsService(name.text):
		r.fail()
	case value.kind == tokenInt || value.kind == tokenLong:
		if t := inv.timeout(name.text); t != nil {
			*t = timeout{time: durationOfMillis(value.num), text: r.b[r.at:r.i]}
		}
	}
}

// selectsService reports whether the attachment is part of the key of a service.
func selectsService(name []byte) bool {
	switch string(name) {
	case "path", "version", "group":
		return true
	}
	return false
}

func (inv *Invocation) attach(name, value []byte) {
	switch string(name) {
	case "path":
		inv.Path = value
	case "version":
		inv.Version = value
	case "group":
		inv.Group = value
	case "traceparent":
		inv.TraceParent = value
	default:
		if t := inv.timeout(name); t != nil {
			*t = timeout{time: parseMilliseconds(value), text: value, zero: '0'}
		}
	}
}

// parseMilliseconds returns 0 if text is not a number.
func parseMilliseconds(text []byte) time.Duration {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return durationOfMillis(n)
}

// durationOfMillis returns 0 if n is not positive or does not fit a Duration.
func durationOfMillis(n int64) time.Duration {
	if n <= 0 || n > int64(1<<63-1)/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

func (inv *Invocation) parseFastjson(body []byte) bool {
	lines := lineReader{b: body}
	if !inv.parseHead(lines.name, func() { lines.next() }) {
		return false
	}
	attachments := lines.next()
	if lines.bad || lines.i < len(body) {
		return false
	}
	return string(attachments) == "null" || inv.readAttachments(attachments)
}

func (inv *Invocation) readAttachments(object []byte) bool {
	r := jsonReader{b: object}
	for r.begin('{'); r.more('}'); {
		name := r.key()
		value := r.value()
		switch {
		case bytes.IndexByte(name, '\\') >= 0:
			return false // the name may be one that selects the service
		case len(value) > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0:
			inv.attach(name, value[1:len(value)-1])
		case string(value) == "null":
			inv.attach(name, nil)
		case selectsService(name):
			return false
		default:
			if inv.attach(name, value); inv.timeout(name) != nil {
				inv.timeout(name).bare = true
			}
		}
	}
	r.end()
	return !r.bad
}

// lineReader reads the lines of a fastjson body, each with one JSON value. The caller's
// platform decides the line ending. A line that is missing, empty or contains a carriage
// return, where Java would begin another line, sets bad.
type lineReader struct {
	b   []byte
	i   int
	bad bool
}

func (l *lineReader) next() []byte {
	n := bytes.IndexByte(l.b[l.i:], '\n')
	if n < 0 {
		l.bad = true
		return nil
	}
	line := l.b[l.i : l.i+n]
	l.i += n + 1
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 || bytes.IndexByte(line, '\r') >= 0 {
		l.bad = true
	}
	return line
}

// name reads a string without escapes, or null.
func (l *lineReader) name() []byte {
	line := l.next()
	if string(line) == "null" {
		return nil
	}
	r := jsonReader{b: line}
	text := r.stringToken()
	r.end()
	if r.bad || bytes.IndexByte(text, '\\') >= 0 {
		l.bad = true
		return nil
	}
	return text[1 : len(text)-1]
}

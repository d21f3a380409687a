package corpus

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Message is a request or a response as parsed by ParseRequest or ParseResponse.
type Message struct {
	Method, Target, Host string // of a request
	Status               int    // of a response
	Fields               []Field
	Trailers             []Field
	Body                 string
	Close                bool // "Connection: close"
}

// Field is one header line, or one of a trailer section.
type Field struct{ Name, Value string }

// Find returns the value of the first field with this name, in any case, or "".
func (m *Message) Find(name string) string {
	for _, f := range m.Fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// The grammar that a sender must generate (RFC 9112 sections 3 to 7, RFC 9110 section 5),
// without the tolerance that recipients are allowed.
const (
	token  = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	text   = `[^\x00-\x08\x0a-\x1f\x7f]*`
	target = `(/[!"$-~]*|\*)`
)

var (
	requestLine = regexp.MustCompile(`^(` + token + `) ` + target + ` HTTP/1\.1$`)
	statusLine  = regexp.MustCompile(`^HTTP/1\.1 ([1-5][0-9][0-9]) ` + text + `$`)
	fieldLine   = regexp.MustCompile(`^(` + token + `): ?(` + text + `)$`)
	lengthValue = regexp.MustCompile(`^[0-9]{1,19}$`)
	hostValue   = regexp.MustCompile(`^([0-9A-Za-z._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{0,5})?$`)
	chunkLine   = regexp.MustCompile(`^[0-9A-Fa-f]{1,8}$`)
)

// ParseRequest parses the request at the start of b, and returns its length. It checks
// what a proxy sends, and is strict, slow and simple. It shares no code with package
// http1, so that neither hides a mistake of the other. If b is incomplete, it returns
// io.ErrUnexpectedEOF.
func ParseRequest(b []byte) (m Message, n int, err error) {
	line, fields, n, err := head(b)
	if err != nil {
		return m, 0, err
	}
	found := requestLine.FindStringSubmatch(line)
	if found == nil {
		return m, 0, errors.New("request line: " + line)
	}
	m = Message{Method: found[1], Target: found[2], Fields: fields}
	hosts := all(fields, "Host")
	if len(hosts) != 1 || !hostValue.MatchString(hosts[0]) {
		return m, 0, errors.New("Host: " + strings.Join(hosts, " and "))
	}
	m.Host = hosts[0]
	n, err = m.body(b, n, true)
	return m, n, err
}

// ParseResponse parses the response at the start of b to a request with this method.
// Interim responses are parsed like others.
func ParseResponse(b []byte, method string) (m Message, n int, err error) {
	line, fields, n, err := head(b)
	if err != nil {
		return m, 0, err
	}
	found := statusLine.FindStringSubmatch(line)
	if found == nil {
		return m, 0, errors.New("status line: " + line)
	}
	m = Message{Fields: fields}
	m.Status, _ = strconv.Atoi(found[1])
	if m.Status < 200 || m.Status == 204 || m.Status == 304 || method == "HEAD" {
		m.Close = m.closes()
		return m, n, nil
	}
	n, err = m.body(b, n, false)
	return m, n, err
}

// head reads lines up to the first empty one.
func head(b []byte) (first string, fields []Field, n int, err error) {
	first, n, err = line(b, 0)
	if err != nil {
		return "", nil, 0, err
	}
	fields, n, err = fieldLines(b, n)
	return first, fields, n, err
}

// line reads the line at b[i:], and returns the index of the next one.
func line(b []byte, i int) (text string, next int, err error) {
	lf := bytes.IndexByte(b[i:], '\n')
	if lf < 0 {
		return "", 0, io.ErrUnexpectedEOF
	}
	text, found := strings.CutSuffix(string(b[i:i+lf]), "\r")
	if !found || strings.Contains(text, "\r") {
		return "", 0, errors.New("line end: " + strconv.Quote(text))
	}
	return text, i + lf + 1, nil
}

func fieldLines(b []byte, i int) (fields []Field, next int, err error) {
	for {
		text, next, err := line(b, i)
		if err != nil || text == "" {
			return fields, next, err
		}
		found := fieldLine.FindStringSubmatch(text)
		if found == nil {
			return nil, 0, errors.New("field line: " + strconv.Quote(text))
		}
		fields = append(fields, Field{found[1], found[2]})
		i = next
	}
}

func all(fields []Field, name string) (values []string) {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

func (m *Message) closes() bool { return strings.EqualFold(m.Find("Connection"), "close") }

// body reads the body at b[i:] and returns the index of its end. A response must announce
// the length of its body.
func (m *Message) body(b []byte, i int, request bool) (n int, err error) {
	m.Close = m.closes()
	lengths, codings := all(m.Fields, "Content-Length"), all(m.Fields, "Transfer-Encoding")
	switch {
	case len(lengths)+len(codings) > 1:
		return 0, errors.New("framing: more than one length or coding")
	case len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return 0, errors.New("framing: coding " + codings[0])
	case len(codings) == 1:
		return m.chunks(b, i)
	case len(lengths) == 0 && request:
		return i, nil
	case len(lengths) == 0:
		return 0, errors.New("framing: a response without length")
	case !lengthValue.MatchString(lengths[0]):
		return 0, errors.New("framing: length " + lengths[0])
	}
	size, err := strconv.Atoi(lengths[0])
	switch {
	case err != nil:
		return 0, err
	case len(b)-i < size:
		return 0, io.ErrUnexpectedEOF
	}
	m.Body = string(b[i : i+size])
	return i + size, nil
}

func (m *Message) chunks(b []byte, i int) (n int, err error) {
	for {
		size, next, err := line(b, i)
		if err != nil {
			return 0, err
		}
		if !chunkLine.MatchString(size) {
			return 0, errors.New("chunk line: " + strconv.Quote(size))
		}
		long, _ := strconv.ParseInt(size, 16, 64)
		if long == 0 {
			m.Trailers, n, err = fieldLines(b, next)
			return n, err
		}
		end := next + int(long)
		if len(b) < end+len("\r\n") {
			return 0, io.ErrUnexpectedEOF
		}
		if string(b[end:end+2]) != "\r\n" {
			return 0, errors.New("chunk without its end")
		}
		m.Body += string(b[next:end])
		i = end + 2
	}
}

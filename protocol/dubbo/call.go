package dubbo

import (
	"bytes"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/remora-proxy/remora/protocol"
)

// Call is an HTTP request that is converted into a Dubbo call. It is reusable, and keeps the
// memory that it needed, up to maxScratch. Its slices alias the request or its own memory, and
// are valid until the next Parse.
type Call struct {
	Interface []byte
	Version   []byte // of the service; empty means none
	Group     []byte // of the service; empty means none
	Method    []byte
	Types     []byte // JVM descriptors of the parameters, concatenated

	Bare bool // the call came as a form, so that the response is only the value

	args        []argument
	attachments []attachment
	scratch     []byte
}

type argument struct {
	text []byte // UTF-8, or checked JSON
	json bool
}

type attachment struct{ name, value []byte }

const (
	maxScratch     = 64 << 10 // bytes of a Call's own memory that it may keep
	maxAttachments = 64
)

// Parse reads an HTTP request: the form of a call to any path, or JSON to /interface/method.
// In both cases it reads the attachments from the headers.
func (c *Call) Parse(req *protocol.Request) error {
	c.reset()
	if string(req.Method) != "POST" {
		return ErrNotCall
	}
	var err error
	if c.Bare = isForm(protocol.Find(req.Headers, "content-type")); c.Bare {
		err = c.parseForm(req.Body)
	} else {
		err = c.parseJSON(req.Path, req.Body)
	}
	if err != nil {
		return err
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.checkArguments(); err != nil {
		return err
	}
	return c.readAttachments(req.Headers)
}

func (c *Call) reset() {
	if cap(c.scratch) > maxScratch {
		c.scratch = nil
	}
	*c = Call{args: c.args[:0], attachments: c.attachments[:0], scratch: c.scratch[:0]}
}

// isForm reports whether a media type, without its parameters, is that of a form.
func isForm(contentType []byte) bool {
	mediaType, _, _ := bytes.Cut(contentType, []byte(";"))
	return protocol.EqualFold(bytes.TrimSpace(mediaType), "application/x-www-form-urlencoded")
}

func (c *Call) checkNames() error {
	for _, name := range [...][]byte{c.Interface, c.Method, c.Version, c.Group} {
		if !utf8.Valid(name) {
			return ErrBadName
		}
	}
	if len(c.Interface) == 0 || len(c.Method) == 0 {
		return ErrBadName
	}
	return nil
}

func (c *Call) checkArguments() error {
	if n, ok := countTypes(c.Types); !ok {
		return ErrBadTypes
	} else if n != len(c.args) {
		return ErrArguments
	}
	types := c.Types
	for i := range c.args {
		n := descriptorLen(types)
		if !c.args[i].fits(types[:n]) {
			return ErrBadArgument
		}
		types = types[n:]
	}
	return nil
}

// readAttachments reads the headers that become attachments: dubbo-attachments, which is a
// list of name=value, percent-encoded and separated by commas, and trace context, which keeps
// its header names.
func (c *Call) readAttachments(headers []protocol.Header) error {
	for i := range headers {
		h, err := &headers[i], error(nil)
		switch {
		case protocol.EqualFold(h.Name, "dubbo-attachments"):
			err = c.readAttachmentList(h.Value)
		case protocol.EqualFold(h.Name, "traceparent") || protocol.EqualFold(h.Name, "tracestate"):
			if utf8.Valid(h.Value) {
				err = c.attach(h.Name, h.Value)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Call) readAttachmentList(list []byte) error {
	for len(list) > 0 {
		var item []byte
		item, list, _ = bytes.Cut(list, []byte(","))
		if item = bytes.TrimSpace(item); len(item) == 0 {
			continue // RFC 9110 section 5.6.1.2
		}
		name, value, ok := c.pair(item)
		if !ok || len(name) == 0 || !utf8.Valid(name) || !utf8.Valid(value) || selectsService(name) {
			return ErrBadAttachment
		}
		if err := c.attach(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *Call) attach(name, value []byte) error {
	if len(c.attachments) == maxAttachments {
		return ErrBadAttachment
	}
	c.attachments = append(c.attachments, attachment{name, value})
	return nil
}

// SetTimeLeft attaches the time left to a parsed call, in place of what its caller attached.
func (c *Call) SetTimeLeft(left time.Duration) {
	text := strconv.AppendInt(nil, protocol.Milliseconds(left), 10)
	c.attachments = slices.DeleteFunc(c.attachments, func(a attachment) bool { return string(a.name) == "timeout" || string(a.name) == "_TO" })
	c.attachments = append(c.attachments, attachment{[]byte("timeout"), text}, attachment{[]byte("_TO"), text})
}

func (c *Call) pair(b []byte) (name, value []byte, ok bool) {
	name, value, found := bytes.Cut(b, []byte("="))
	name, okName := c.percentDecode(name)
	value, okValue := c.percentDecode(value)
	return name, value, found && okName && okValue
}

// percentDecode decodes text of a form, where a plus is a space. Text without escapes is
// returned unchanged.
func (c *Call) percentDecode(b []byte) ([]byte, bool) {
	if bytes.IndexByte(b, '%') < 0 && bytes.IndexByte(b, '+') < 0 {
		return b, true
	}
	start, text := len(c.scratch), c.scratch
	for i := 0; i < len(b); i++ {
		char := b[i]
		switch char {
		case '+':
			char = ' '
		case '%':
			if i+2 >= len(b) {
				return nil, false
			}
			high, low := unhex(b[i+1]), unhex(b[i+2])
			if high < 0 || low < 0 {
				return nil, false
			}
			char = byte(high<<4 | low)
			i += 2
		}
		text = append(text, char)
	}
	c.scratch = text
	return text[start:len(text):len(text)], true
}

// parseForm reads the form of a call: interface, method, parameterTypesString (descriptors), a
// parameter for each argument, and version and group if the service has them. They may come in
// any order; other fields are ignored.
func (c *Call) parseForm(body []byte) error {
	for len(body) > 0 {
		var field []byte
		field, body, _ = bytes.Cut(body, []byte("&"))
		name, value, ok := c.pair(field)
		if !ok || !c.field(name, value) {
			return ErrBadForm
		}
	}
	return nil
}

// field reads one field of a form. It refuses a repeated one, and an argument too many.
func (c *Call) field(name, value []byte) bool {
	switch string(name) {
	case "interface":
		return setOnce(&c.Interface, value)
	case "method":
		return setOnce(&c.Method, value)
	case "parameterTypesString":
		return setOnce(&c.Types, value)
	case "version":
		return setOnce(&c.Version, value)
	case "group":
		return setOnce(&c.Group, value)
	case "parameter":
		if len(c.args) == maxArguments || !utf8.Valid(value) {
			return false
		}
		c.args = append(c.args, argument{text: value})
	}
	return true
}

// setOnce sets field and reports whether it was unset, which means nil. value must not be nil.
func setOnce(field *[]byte, value []byte) bool {
	if *field != nil {
		return false
	}
	*field = value
	return true
}

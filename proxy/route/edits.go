package route

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// Edits change what a route sends on: the host and the headers of its requests, and the headers
// of its responses.
type Edits struct {
	Host              []byte // in place of the client's; empty means that it stays
	Request, Response HeaderEdits
}

// NewEdits returns the edits of a plan, or nil if it has none.
func NewEdits(p *Plan) *Edits {
	r := p.Route
	if !r.RequestHeaders.Given() && !r.ResponseHeaders.Given() && len(r.Respond.Headers) == 0 && r.Rewrite.Host == "" {
		return nil
	}
	e := &Edits{Host: []byte(r.Rewrite.Host), Request: newHeaderEdits(&r.RequestHeaders), Response: newHeaderEdits(&r.ResponseHeaders)}
	e.Response.put(r.Respond.Headers, true)
	return e
}

// HeaderEdits change the headers of a message.
type HeaderEdits struct {
	gone []string // in lower case: those that are removed or set
	new  []headerEdit
}

type headerEdit struct {
	name  []byte
	parts []config.Part
}

func newHeaderEdits(c *config.HeaderEdits) (e HeaderEdits) {
	for _, name := range c.Remove {
		e.gone = append(e.gone, strings.ToLower(name))
	}
	e.put(c.Set, true)
	e.put(c.Add, false)
	return e
}

// put adds headers, in place of others if replace is true.
func (e *HeaderEdits) put(all map[string]string, replace bool) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts, _ := config.ParseValue(all[name]) // valid, as the configuration is
		e.new = append(e.new, headerEdit{[]byte(name), parts})
		if replace {
			e.gone = append(e.gone, strings.ToLower(name))
		}
	}
}

// Given reports whether there is a change.
func (e *HeaderEdits) Given() bool { return len(e.gone)+len(e.new) > 0 }

// Apply returns hs changed, in its memory. It appends the values that it makes to buf, which
// the caller keeps as long as hs.
func (e *HeaderEdits) Apply(hs []protocol.Header, v *Values, buf []byte) ([]protocol.Header, []byte) {
	if len(e.gone) > 0 {
		hs = slices.DeleteFunc(hs, func(h protocol.Header) bool {
			return slices.ContainsFunc(e.gone, func(name string) bool { return protocol.EqualFold(h.Name, name) })
		})
	}
	for i := range e.new {
		start := len(buf)
		for _, p := range e.new[i].parts {
			buf = v.appendPart(buf, p)
		}
		hs = append(hs, protocol.Header{Name: e.new[i].name, Value: buf[start:len(buf):len(buf)]})
	}
	return hs, buf
}

// Values take the places of placeholders.
type Values struct {
	Peer      []byte // IP address of the client
	Host      []byte // as the client sent it, with its port
	Method    []byte
	Target    []byte // as the client sent it
	RequestID []byte

	Service, Listener string // names
}

// Clone returns v in memory of its own.
func (v *Values) Clone() *Values {
	return &Values{
		Peer: bytes.Clone(v.Peer), Host: bytes.Clone(v.Host), Method: bytes.Clone(v.Method), Target: bytes.Clone(v.Target),
		RequestID: bytes.Clone(v.RequestID), Service: v.Service, Listener: v.Listener,
	}
}

func (v *Values) appendPart(dst []byte, p config.Part) []byte {
	switch p.Placeholder {
	case "peer":
		return append(dst, v.Peer...)
	case "host":
		return append(dst, v.Host...)
	case "method":
		return append(dst, v.Method...)
	case "path":
		return append(dst, pathOnly(v.Target)...)
	case "query":
		_, query, _ := bytes.Cut(v.Target, questionMark)
		return append(dst, query...)
	case "service":
		return append(dst, v.Service...)
	case "listener":
		return append(dst, v.Listener...)
	case "request_id":
		return append(dst, v.RequestID...)
	}
	return append(dst, p.Text...)
}

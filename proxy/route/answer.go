package route

import (
	"bytes"
	"cmp"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// Answer is the response of a route that leads to no service: a redirect, or one that the
// configuration has.
type Answer struct {
	Redirects bool
	status    int
	body      []byte

	// Of a redirect. Empty means that of the request.
	scheme, host, path []byte
}

// NewAnswer returns the answer of a plan, or nil if it leads to a service.
func NewAnswer(p *Plan) *Answer {
	switch to, own := &p.Route.Redirect, &p.Route.Respond; {
	case to.Given():
		return &Answer{
			Redirects: true, status: cmp.Or(to.Status, 302),
			scheme: []byte(to.Scheme), host: []byte(to.Host), path: []byte(to.Path),
		}
	case own.Given():
		return respond(own)
	}
	return nil
}

// NewResponse returns the answer that c says, and its headers as edits of it.
func NewResponse(c *config.Respond) (*Answer, HeaderEdits) {
	var headers HeaderEdits
	headers.put(c.Headers, true)
	return respond(c), headers
}

func respond(c *config.Respond) *Answer {
	return &Answer{status: cmp.Or(c.Status, 200), body: []byte(c.Body)}
}

// Fill makes res the response to req, whose path is rewritten. It appends the memory of res to buf, but
// for a body, which all responses share and nobody may change.
func (a *Answer) Fill(res *protocol.Response, req *protocol.Request, buf []byte) []byte {
	res.Status = a.status
	if a.Redirects {
		start := len(buf)
		buf = a.appendLocation(buf, req)
		res.Headers = append(res.Headers, protocol.Header{Name: nameLocation, Value: buf[start:len(buf):len(buf)]})
		return buf
	}
	if len(a.body) > 0 {
		res.Body = a.body
		res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameContentType, Value: typeText})
	}
	return buf
}

// appendLocation appends where the client of req is sent. Without a scheme it is a reference
// relative to the client's own URL (RFC 9110 section 10.2.2), whose scheme only the client knows.
func (a *Answer) appendLocation(dst []byte, req *protocol.Request) []byte {
	if len(a.scheme) > 0 {
		dst = append(append(dst, a.scheme...), ':')
	}
	if host := a.host; len(a.scheme)+len(host) > 0 {
		if len(host) == 0 {
			host, _ = hostname.Split(req.Authority)
		}
		dst = append(append(dst, "//"...), host...)
	}
	if len(a.path) > 0 {
		dst = append(dst, a.path...)
		return append(dst, req.Path[len(pathOnly(req.Path)):]...)
	}
	// Clients take a path that starts with two slashes for a host, and some a backslash for a slash.
	return append(append(dst, '/'), bytes.TrimLeft(req.Path, `/\`)...)
}

var nameLocation, typeText = []byte("Location"), []byte("text/plain; charset=utf-8")

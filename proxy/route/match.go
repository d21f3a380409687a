package route

import (
	"bytes"
	"strings"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// conditions are what a route asks of a request. All that are set must hold.
type conditions struct {
	index   int    // of the plan
	host    []byte // lower case, without port; empty: any
	prefix  []byte
	methods [][]byte
	headers []headerMatch
	call    callMatch
	split   *split // nil: the route leads to one service
}

// headerMatch is one condition of a route.
type headerMatch struct {
	name  string // lower case
	value []byte
}

// callMatch is the part of a match that is of Dubbo alone; empty: any.
type callMatch struct {
	service, version, group []byte

	never bool // the route has conditions on HTTP
	only  bool // the route has conditions on Dubbo
}

func newConditions(index int, m *config.Match) *conditions {
	c := &conditions{
		index: index, host: bytes.ToLower([]byte(m.Host)), prefix: []byte(m.Path),
		call: callMatch{
			service: []byte(m.Service), version: []byte(m.Version), group: []byte(m.Group),
			never: m.OfHTTP(), only: m.OfDubbo(),
		},
	}
	for _, method := range m.Method {
		c.methods = append(c.methods, []byte(method))
	}
	for name, value := range m.Header {
		c.headers = append(c.headers, headerMatch{strings.ToLower(name), []byte(value)})
	}
	return c
}

// match reports whether every condition that is set holds.
func (c *conditions) match(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP {
		return c.call.match(req) && (len(c.methods) == 0 || c.matchMethod(req.Method))
	}
	if c.call.only {
		return false
	}
	if len(c.host) > 0 && !protocol.EqualFold(hostOnly(req.Authority), string(c.host)) {
		return false
	}
	if !bytes.HasPrefix(req.Path, c.prefix) {
		return false
	}
	for i := range c.headers {
		if !c.headers[i].match(req.Headers) {
			return false
		}
	}
	if len(c.methods) == 0 {
		return string(req.Method) != "CONNECT" // raw bytes to an endpoint: only where a route says so
	}
	return c.matchMethod(req.Method)
}

func (c *conditions) matchMethod(method []byte) bool {
	for _, m := range c.methods {
		if bytes.Equal(m, method) {
			return true
		}
	}
	return false
}

func (m *callMatch) match(req *protocol.Request) bool {
	return !m.never && matches(m.service, req.Path) && matches(m.version, req.Version) && matches(m.group, req.Group)
}

// matches reports whether got is what a condition wants. An empty condition wants
// anything.
func matches(want, got []byte) bool { return len(want) == 0 || bytes.Equal(want, got) }

// match reports whether one of the lines has the value.
func (m *headerMatch) match(hs []protocol.Header) bool {
	for i := range hs {
		if protocol.EqualFold(hs[i].Name, m.name) && bytes.Equal(hs[i].Value, m.value) {
			return true
		}
	}
	return false
}

// hostOnly cuts the port off an authority, which may hold an IPv6 literal.
func hostOnly(authority []byte) []byte {
	colon := bytes.LastIndexByte(authority, ':')
	if colon < 0 || bytes.IndexByte(authority[colon:], ']') >= 0 {
		return authority
	}
	return authority[:colon]
}

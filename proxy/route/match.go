package route

import (
	"bytes"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// conditions are the match of a route. All that are set must hold.
type conditions struct {
	index   int      // of the plan
	host    []byte   // lower case, without port; empty means any
	prefix  []byte   // of the path; empty means any
	whole   bool     // a segment of the path ends with the prefix
	methods [][]byte // empty means any but CONNECT
	headers []headerMatch
	call    callMatch
	split   *split // nil means that the route leads to one service
}

type headerMatch struct {
	name  string // lower case
	value []byte
}

// callMatch is the conditions on Dubbo calls. An empty one allows any value.
type callMatch struct {
	service, version, group []byte

	httpOnly  bool // the route has conditions on HTTP
	dubboOnly bool // the route has conditions on Dubbo
}

func newConditions(index int, m *config.Match) *conditions {
	prefix, whole := prefixOf(m)
	c := &conditions{
		index: index, host: bytes.ToLower([]byte(m.Host)), prefix: []byte(prefix), whole: whole,
		call: callMatch{
			service: []byte(m.Service), version: []byte(m.Version), group: []byte(m.Group),
			httpOnly: m.OfHTTP(), dubboOnly: m.OfDubbo(),
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

// prefixOf returns the prefix that a path must have. If whole is true, a segment must end with it,
// as in the Gateway API of Kubernetes: there a slash at the end of the condition counts for nothing.
func prefixOf(m *config.Match) (prefix string, whole bool) {
	switch m.Path {
	case "":
		return m.PrefixText, false
	case "/":
		return m.Path, false
	}
	return strings.TrimSuffix(m.Path, "/"), true
}

func (c *conditions) match(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP {
		return c.call.match(req) && (len(c.methods) == 0 || c.matchMethod(req.Method))
	}
	if c.call.dubboOnly {
		return false
	}
	if len(c.host) > 0 && !protocol.EqualFold(hostOnly(req.Authority), string(c.host)) {
		return false
	}
	if !bytes.HasPrefix(req.Path, c.prefix) || c.whole && !endsSegment(req.Path, len(c.prefix)) {
		return false
	}
	for i := range c.headers {
		if !c.headers[i].match(req.Headers) {
			return false
		}
	}
	if len(c.methods) == 0 {
		return string(req.Method) != "CONNECT" // raw bytes to an endpoint: only if a route names the method
	}
	return c.matchMethod(req.Method)
}

// endsSegment reports whether a segment of target's path ends at n.
func endsSegment(target []byte, n int) bool {
	return n == len(target) || target[n] == '/' || target[n] == '?'
}

func (c *conditions) matchMethod(method []byte) bool {
	return slices.ContainsFunc(c.methods, func(m []byte) bool { return bytes.Equal(m, method) })
}

func (m *callMatch) match(req *protocol.Request) bool {
	return !m.httpOnly && matches(m.service, req.Path) && matches(m.version, req.Version) && matches(m.group, req.Group)
}

// matches reports whether got has the value of a condition; an empty one allows any.
func matches(want, got []byte) bool { return len(want) == 0 || bytes.Equal(want, got) }

// match reports whether the header has the value. Several lines of a name are one value, joined
// with a comma and a space (RFC 9110 section 5.3), so a line more can't add a match.
func (m *headerMatch) match(hs []protocol.Header) bool {
	for i := range hs {
		if protocol.EqualFold(hs[i].Name, m.name) {
			return m.matchLines(hs[i].Value, hs[i+1:])
		}
	}
	return false
}

// matchLines is match for a header whose first line has a value, and whose others are among hs.
func (m *headerMatch) matchLines(value []byte, hs []protocol.Header) bool {
	rest, ok := bytes.CutPrefix(m.value, value)
	for i := 0; ok && i < len(hs); i++ {
		if !protocol.EqualFold(hs[i].Name, m.name) {
			continue
		}
		if rest, ok = bytes.CutPrefix(rest, listSeparator); ok {
			rest, ok = bytes.CutPrefix(rest, hs[i].Value)
		}
	}
	return ok && len(rest) == 0
}

var listSeparator = []byte(", ")

// hostOnly returns an authority without its port. The host may be an IPv6 literal.
func hostOnly(authority []byte) []byte {
	colon := bytes.LastIndexByte(authority, ':')
	if colon < 0 || bytes.IndexByte(authority[colon:], ']') >= 0 {
		return authority
	}
	return authority[:colon]
}

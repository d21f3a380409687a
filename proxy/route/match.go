package route

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// conditions are the match of a route. All that are set must hold.
type conditions struct {
	index   int            // of the plan
	host    []byte         // in the canonical form of package hostname; empty means any
	wild    bool           // host, which starts with a dot, is the end of hosts
	prefix  []byte         // of the path; empty means any
	whole   bool           // a segment of the path ends with the prefix
	regex   *regexp.Regexp // of the path; nil means any
	source  string         // of regex
	methods [][]byte       // empty means any but CONNECT
	headers []valueMatch
	queries []valueMatch
	call    callMatch
	split   *split // nil means that the route leads to one service
}

// callMatch is the conditions on calls. An empty one allows any value.
type callMatch struct {
	service, version, group []byte

	httpOnly bool // the route has conditions on HTTP
	callOnly bool // the route has conditions on calls
}

func newConditions(index int, m *config.Match) *conditions {
	prefix, whole := prefixOf(m)
	host, wild := strings.CutPrefix(m.Host, "*")
	c := &conditions{
		index: index, host: []byte(hostname.Name(host)), wild: wild, prefix: []byte(prefix), whole: whole,
		headers: newValueMatches(m.Header, strings.ToLower), queries: newValueMatches(m.Query, strings.Clone),
		call: callMatch{
			service: []byte(m.Service), version: []byte(m.Version), group: []byte(m.Group),
			httpOnly: m.OfHTTP(), callOnly: m.OfDubbo(),
		},
	}
	if m.Regex != "" {
		c.source = m.Regex
		c.regex, _ = config.CompileRegex(m.Regex) // valid, as the configuration is
	}
	for _, method := range m.Method {
		c.methods = append(c.methods, []byte(method))
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

// byPath reports whether there is a condition on the path.
func (c *conditions) byPath() bool { return len(c.prefix) > 0 || c.regex != nil }

// match reports whether a request meets the conditions. The host of one of HTTP has the canonical form host.
func (c *conditions) match(req *protocol.Request, host []byte) bool {
	if req.Codec != protocol.CodecHTTP {
		return c.call.match(req) && (len(c.methods) == 0 || c.matchMethod(req.Method))
	}
	if c.call.callOnly {
		return false
	}
	if len(c.host) > 0 && !c.matchHost(host) {
		return false
	}
	if !c.matchPrefix(req.Path) {
		return false
	}
	for i := range c.headers {
		if !c.headers[i].matchHeader(req.Headers) {
			return false
		}
	}
	if len(c.methods) == 0 {
		if string(req.Method) == "CONNECT" {
			return false // raw bytes to an endpoint: only if a route names the method
		}
	} else if !c.matchMethod(req.Method) {
		return false
	}
	for i := range c.queries {
		if !c.queries[i].matchQuery(req.Path) {
			return false
		}
	}
	return c.regex == nil || c.matchRegex(req.Path)
}

func (c *conditions) matchHost(host []byte) bool {
	if !c.wild {
		return bytes.Equal(host, c.host)
	}
	return len(host) > len(c.host) && host[0] != '.' && bytes.HasSuffix(host, c.host)
}

func (c *conditions) matchPrefix(target []byte) bool {
	return bytes.HasPrefix(target, c.prefix) && (!c.whole || endsSegment(target, len(c.prefix)))
}

func (c *conditions) matchRegex(target []byte) bool {
	path := pathOnly(target)
	return len(path) <= config.MaxRegexInput && c.regex.Match(path)
}

// pathOnly returns a target without its query.
func pathOnly(target []byte) []byte {
	path, _, _ := bytes.Cut(target, questionMark)
	return path
}

var questionMark = []byte("?")

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

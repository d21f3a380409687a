package allow

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/identity"
)

// rule allows what meets all its conditions. An empty one is met by all. matched counts.
type rule struct {
	name     string
	from     identity.Patterns
	methods  []string
	paths    []pathPattern // of HTTP
	services []string      // of Dubbo
	matched  atomic.Uint64
}

// pathPattern is a path, or the beginning of paths, with the / that ends it.
type pathPattern struct {
	text  string
	below bool
}

func (r *rule) init(i int, c *config.AllowRule) {
	r.name, r.methods, r.services = ruleName(i, c), c.Method, c.Service
	r.from, _ = identity.Parse(c.From) // valid, as the configuration is
	for _, p := range c.Path {
		base, below := strings.CutSuffix(p, "/*")
		if below {
			base += "/"
		}
		r.paths = append(r.paths, pathPattern{base, below})
	}
}

func (r *rule) matches(c *Call) bool {
	if len(r.from) > 0 && !r.from.Match(c.Peer) {
		return false
	}
	if c.Req == nil { // a stream of bytes has no method and no path
		return len(r.methods)+len(r.paths)+len(r.services) == 0
	}
	if len(r.methods) > 0 && !slices.Contains(r.methods, string(c.Req.Method)) {
		return false
	}
	isHTTP := c.Req.Codec == protocol.CodecHTTP
	switch {
	case len(r.paths) > 0:
		return isHTTP && r.matchesPath(c.Path)
	case len(r.services) > 0:
		return !isHTTP && slices.Contains(r.services, string(c.Req.Path))
	}
	return true
}

func (r *rule) matchesPath(target []byte) bool {
	path := withoutQuery(target)
	for _, p := range r.paths {
		switch {
		case !p.below && string(path) == p.text:
			return true
		case p.below && len(path) >= len(p.text) && string(path[:len(p.text)]) == p.text && isPlain(path[len(p.text):]):
			return true
		}
	}
	return false
}

package allow

import (
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/identity"
)

// Set is the rules of one listener, service or route. Any goroutine may use it; only its
// counters change.
type Set struct {
	Name   string // as in listeners.ingress, services.compute or routes.0
	config *config.Allow
	rules  []rule
	denied atomic.Uint64 // requests that no rule allows
}

// Enforced reports whether s refuses what no rule allows. A nil Set does not.
func (s *Set) Enforced() bool { return s != nil && s.config.Enforce }

// Call is what rules look at.
type Call struct {
	Peer *identity.Names   // of the calling sidecar; nil means none was proved
	Req  *protocol.Request // nil for a stream of bytes
	Path []byte            // of Req, or that before a rewrite
}

// NewSet returns the rules of c, or nil if it has none. A set of the generation before with the
// same rules is kept, with its counts. The rules must be valid.
func NewSet(name string, c *config.Allow, before *Set) *Set {
	switch {
	case !c.Given():
		return nil
	case before != nil && reflect.DeepEqual(before.config, c):
		return before
	}
	s := &Set{Name: name, config: c, rules: make([]rule, len(c.Rules))}
	for i := range c.Rules {
		s.rules[i].init(i, &c.Rules[i])
	}
	return s
}

// Logger writes the operator's log, as shard.Logger does.
type Logger interface {
	Warn(msg string, args ...any)
}

// Refuses reports whether s refuses a call of client, and counts and logs what no rule allows. A
// nil Set refuses nothing.
func (s *Set) Refuses(c *Call, client string, log Logger) bool {
	if s == nil {
		return false
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.matches(c) {
			r.matched.Add(1)
			return false
		}
	}
	if n := s.denied.Add(1); n&(n-1) == 0 { // the more there are, the fewer lines
		log.Warn(s.message(), append(c.describe(), "rules", s.Name, "client", client, "so_far", n)...)
	}
	return s.config.Enforce
}

// message is the message of a log line. The two differ, since a Logger may omit one that it has
// just written.
func (s *Set) message() string {
	if s.config.Enforce {
		return "request refused: no rule allows it"
	}
	return "no rule allows a request, which passes because the rules are not enforced"
}

// maxLogged bounds a value of a log line, in bytes.
const maxLogged = 256

// describe returns what the log says about a call. A query may hold secrets.
func (c *Call) describe() (args []any) {
	if c.Peer != nil {
		args = append(args, "names", append(slices.Clip(c.Peer.URIs), c.Peer.DNS...))
	}
	if c.Req != nil {
		method, path := c.Req.Method, withoutQuery(c.Path)
		args = append(args, "method", string(method[:min(len(method), maxLogged)]), "path", string(path[:min(len(path), maxLogged)]))
	}
	return args
}

// Count is a number of calls.
type Count struct {
	Set, Rule string // Rule is the name or index of a rule; NoRule for calls that none allows
	Enforced  bool
	Calls     uint64
}

// NoRule stands for a rule in Count, for calls that no rule allows.
const NoRule = "none"

// Counts appends the counts of s to all.
func (s *Set) Counts(all []Count) []Count {
	for i := range s.rules {
		all = append(all, Count{s.Name, s.rules[i].name, s.config.Enforce, s.rules[i].matched.Load()})
	}
	return append(all, Count{s.Name, NoRule, s.config.Enforce, s.denied.Load()})
}

func ruleName(i int, c *config.AllowRule) string {
	if c.Name != "" {
		return c.Name
	}
	return strconv.Itoa(i)
}

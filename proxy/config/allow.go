package config

import (
	"slices"
	"strings"
)

// Allow says which requests pass. Without rules all do.
type Allow struct {
	// A request that no rule allows gets 403 `not-allowed`. `false` only counts and logs it.
	Enforce bool `yaml:"enforce"`
	// One rule that matches allows the request. No rules allow every request.
	Rules []AllowRule `yaml:"rules" filled:"true"`
}

// setDefaults makes rules enforced once there is one.
func (a *Allow) setDefaults() { a.Enforce = true }

// AllowRule allows requests. Every condition that is set must hold. An empty list is an error,
// since whoever fills the file in may have meant that nobody passes.
type AllowRule struct {
	// `rule` in metrics. Empty means the index.
	Name string `yaml:"name"`
	// Names that the caller has proved, as in `tls.peers`. Only listeners with `tls` that ask for certificates know them.
	From []string `yaml:"from" filled:"true"`
	// One of these methods, of HTTP or of a Dubbo interface.
	Method []string `yaml:"method" filled:"true"`
	// HTTP: one of these paths; with `/*` at its end all below.
	Path []string `yaml:"path" filled:"true"`
	// Dubbo: one of these interfaces, or paths that the provider exports them by.
	Service []string `yaml:"service" filled:"true"`
}

// Given reports whether there are rules.
func (a *Allow) Given() bool { return len(a.Rules) > 0 }

// Enforced reports whether a request that no rule allows is refused.
func (a *Allow) Enforced() bool { return a.Given() && a.Enforce }

// callers are what may reach a set of rules.
type callers struct {
	http, dubbo, opaque bool   // requests of HTTP, calls of Dubbo, streams of bytes
	names               bool   // some prove their names
	prefix              string // of every path that reaches them
	methods             []string
}

// callersOf returns what the listeners that meet a condition accept.
func (c *Config) callersOf(leads func(*Listener) bool) (from callers) {
	for i := range c.Listeners {
		if l := &c.Listeners[i]; leads(l) {
			from.add(l)
		}
	}
	return from
}

// add adds what a listener accepts.
func (c *callers) add(l *Listener) {
	c.http = c.http || l.Protocol == ProtocolHTTP || l.Protocol == ProtocolLink
	c.dubbo = c.dubbo || l.Protocol == ProtocolDubbo || l.Protocol == ProtocolLink
	c.opaque = c.opaque || l.Protocol == ProtocolTCP || l.Protocol == ProtocolLink
	c.names = c.names || l.Protocol == ProtocolLink && l.TLS.Enabled() || l.TLS.Names()
}

// check checks the rules of a listener, a service or a route.
func (a *Allow) check(in scope, at path) {
	var from callers
	switch c := in.config; {
	case in.listener != nil:
		from.add(in.listener)
		in.refuseIf(in.listener.Transparent && a.Given(), at,
			"contradicts transparent: connections that pass through have no method and no path; set the rules at routes")
	case in.service != nil:
		name := in.service.Name
		from = c.callersOf(func(l *Listener) bool { return l.Service == name || l.Service == "" && c.routed(name) })
	default:
		m := &in.route.Match
		from = c.callersOf(func(l *Listener) bool { return l.Service == "" })
		from.prefix, from.methods = m.Path, m.Method
		from.http, from.dubbo = from.http && !m.OfDubbo(), from.dubbo && !m.OfHTTP()
	}
	a.checkRules(in, at, from)
}

// routed reports whether a route leads to a service.
func (c *Config) routed(name string) bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool {
		return r.Service == name || slices.ContainsFunc(r.Split, func(s Share) bool { return s.Name == name })
	})
}

// checkRules reports rules that never match or are never needed, and invalid names of rules.
func (a *Allow) checkRules(in scope, at path, c callers) {
	if !c.http && !c.dubbo && !c.opaque { // not used yet, or not any more
		c.http, c.dubbo, c.opaque, c.names = true, true, true, true
	}
	names := map[string]bool{}
	for i := range a.Rules {
		r, shown := &a.Rules[i], at.key("rules").item(i)
		checkRuleName(in, shown.key("name"), r.Name, names)
		r.check(in, shown, c)
		for j := range a.Rules[:i] {
			if covers(&a.Rules[j], r) {
				in.report(shown, "never needed: rules[%d] allows all requests that this one does", j)
				break
			}
		}
	}
}

const maxRuleName = 64

func checkRuleName(in scope, at path, name string, names map[string]bool) {
	isBad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
	}
	switch {
	case name == "":
		return
	case len(name) > maxRuleName || strings.ContainsFunc(name, isBad) || strings.Trim(name, "0123456789") == "" || name == "none":
		in.report(at, "expected at most %d letters, digits and -._ that are no number, and not none; got %q", maxRuleName, name)
	case names[name]:
		in.report(at, "%q is already the name of another rule", name)
	}
	names[name] = true
}

// check reports conditions that no request meets.
func (r *AllowRule) check(in scope, at path, c callers) {
	for i, name := range r.From {
		in.refuseIf(!isPeer(name), at.key("from").item(i), "expected spiffe://domain/path, dns:name or *.suffix, got %q", name)
	}
	in.refuseIf(len(r.From) > 0 && !c.names, at.key("from"),
		"never matches: no listener with tls leads here that asks for certificates, and other callers prove no name")
	in.refuseIf(len(r.Path) > 0 && len(r.Service) > 0, at, "path is of HTTP, service is of Dubbo: nothing can match both")
	in.refuseIf(len(r.Path) > 0 && !c.http, at.key("path"), "never matches: no HTTP request comes here")
	in.refuseIf(len(r.Service) > 0 && !c.dubbo, at.key("service"), "never matches: no Dubbo call comes here")
	in.refuseIf(len(r.Method) > 0 && !c.http && !c.dubbo, at.key("method"), "never matches: no request comes here, only opaque streams")
	for i, m := range r.Method {
		in.refuseIf(m == "" || strings.ContainsAny(m, " \t"), at.key("method").item(i), "expected a method such as GET, got %q", m)
		in.refuseIf(len(r.Path) > 0 && m != strings.ToUpper(m), at.key("method").item(i), "expected a method of HTTP such as GET, got %q", m)
		in.refuseIf(len(c.methods) > 0 && !slices.Contains(c.methods, m), at.key("method").item(i), "never matches: match.method lacks %s", m)
	}
	for i, p := range r.Path {
		checkRulePath(in, at.key("path").item(i), p, c.prefix)
	}
	for i, s := range r.Service {
		in.refuseIf(s == "" || strings.ContainsAny(s, " \t*"), at.key("service").item(i), "expected the name of an interface, got %q", s)
	}
}

// checkRulePath reports a path that no request has that reaches the rule. prefix begins all of these.
func checkRulePath(in scope, at path, p, prefix string) {
	base, below := strings.CutSuffix(p, "/*")
	isBad := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("*?#", c) }
	first := base // of the paths that it allows
	if below {
		first += "/"
	}
	switch {
	case !strings.HasPrefix(p, "/") || strings.ContainsFunc(base, isBad):
		in.report(at, "expected a path such as /v1/users, or with /* at its end all below, got %q", p)
	case strings.Contains(first, "//") || strings.Contains(base+"/", "/./") || strings.Contains(base+"/", "/../"):
		in.report(at, "never matches: a path that applications may shorten is not allowed by a rule")
	case !strings.HasPrefix(first, prefix) && !(below && strings.HasPrefix(prefix, first)):
		in.report(at, "never matches: match.path is %s", prefix)
	}
}

// covers reports whether a allows all that b does.
func covers(a, b *AllowRule) bool {
	within := func(a, b []string) bool { // every value that b allows, a allows
		return len(a) == 0 || len(b) > 0 && !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
	}
	return within(a.From, b.From) && within(a.Method, b.Method) && within(a.Path, b.Path) && within(a.Service, b.Service)
}

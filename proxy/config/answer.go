package config

import (
	"slices"
	"strings"
)

// Redirect sends the client elsewhere, with the query of its request.
type Redirect struct {
	// 301, 302, 303, 307 or 308. 0 means 302.
	Status int `yaml:"status" max:"308"`
	// `http` or `https`. Empty means that of the request. Without `host` its host stays, without its port.
	Scheme string `yaml:"scheme"`
	// Host, with or without a port. Empty means that of the request.
	Host string `yaml:"host"`
	// Path in place of the request's. Empty means the request's, after `rewrite.path`.
	Path string `yaml:"path"`
}

// Given reports whether a file sets any key.
func (r *Redirect) Given() bool { return *r != Redirect{} }

// Respond answers a request itself.
type Respond struct {
	// 200 to 599. 0 means 200.
	Status int `yaml:"status" max:"599"`
	// At most 64 KiB. `Content-Type` is that of text, unless a header says otherwise.
	Body string `yaml:"body"`
	// Headers, as in `response_headers.set`.
	Headers map[string]string `yaml:"headers"`
}

// Given reports whether a file sets any key.
func (r *Respond) Given() bool { return r.Status != 0 || r.Body != "" || len(r.Headers) > 0 }

// Answers reports whether the route answers itself, and leads to no service.
func (r *Route) Answers() bool { return r.Redirect.Given() || r.Respond.Given() }

const maxBody = 64 << 10

// checkAnswer reports errors of a route that leads to no service.
func (r *Route) checkAnswer(in scope, at path) {
	kind := "respond"
	if r.Redirect.Given() {
		kind = "redirect"
	}
	in.refuseIf(r.Redirect.Given() && r.Respond.Given(), at.key("respond"), "contradicts redirect")
	in.refuseIf(r.Service != "", at.key("service"), "contradicts %s: the route answers itself", kind)
	for key, s := range r.filters() {
		in.refuseIf(s.Enabled(), at.key(key), "contradicts %s: the route answers itself", kind)
	}
	in.refuseIf(in.config.routeProtocol(&r.Match) != ProtocolHTTP, at.key(kind), "answers only HTTP requests, and only Dubbo calls come here")
	in.refuseIf(slices.Contains(r.Match.Method, "CONNECT"), at.key("match").key("method"), "contradicts %s: a tunnel needs a service", kind)
	in.refuseIf(r.Respond.Given() && r.Rewrite.Path != "", at.key("respond"), "contradicts rewrite.path: nothing is sent on")
}

// check reports a redirect that clients would not follow, or follow in a circle.
func (to *Redirect) check(in scope, at path) {
	if !to.Given() {
		return
	}
	rewritten := in.route.Rewrite.Path
	if to.Status != 0 && !slices.Contains([]int{301, 302, 303, 307, 308}, to.Status) {
		in.report(at.key("status"), "expected 301, 302, 303, 307 or 308, got %d", to.Status)
	}
	in.refuseIf(!slices.Contains([]string{"", "http", "https"}, to.Scheme), at.key("scheme"), "expected http or https, got %q", to.Scheme)
	checkHost(in, at.key("host"), to.Host)
	if to.Path != "" {
		checkPath(in, at.key("path"), to.Path)
		in.refuseIf(strings.HasPrefix(to.Path, "//"), at.key("path"), `expected one "/" at the start: clients take two for a host`)
		in.refuseIf(rewritten != "", at.key("path"), "contradicts rewrite.path")
	}
	in.refuseIf(to.Scheme+to.Host+to.Path+rewritten == "", at, "leads to the same URL; expected scheme, host, path or rewrite.path")
}

// check reports what no HTTP response can have.
func (to *Respond) check(in scope, at path) {
	in.refuseIf(to.Status != 0 && to.Status < 200, at.key("status"), "expected 200 to 599, got %d", to.Status)
	in.refuseIf((to.Status == 204 || to.Status == 304) && to.Body != "", at.key("body"), "a response with the status %d has no body", to.Status)
	in.refuseIf(len(to.Body) > maxBody, at.key("body"), "expected at most %s, got %d bytes", formatSize(maxBody), len(to.Body))
	checkHeaderValues(in, at.key("headers"), to.Headers)
}

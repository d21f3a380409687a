package config

import (
	"maps"
	"slices"
	"strings"
)

// maxRewrite bounds rewrite.path, in bytes: a rewrite makes a path longer by at most
// this.
const maxRewrite = 1024

// matchHost reports what no host can be.
func (v *validator) matchHost(at path, host string) {
	name, _ := strings.CutPrefix(host, "*.")
	switch {
	case strings.Contains(name, "*"):
		v.report(at, `expected one host, or the end of hosts such as "*.svc", got %q; a route without host matches all hosts`, host)
	case strings.ContainsAny(name, "/ ") || strings.Contains(name, ":") && !strings.HasPrefix(name, "["):
		v.report(at, "expected a host without port, got %q", host)
	case name != host && (name == "" || name[0] == '.' || name[0] == '['):
		v.report(at, `expected the end of hosts such as "*.svc", got %q`, host)
	}
}

// matchQuery reports conditions without a name.
func (v *validator) matchQuery(at path, query map[string]Condition) {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		v.refuseIf(name == "", at.entry(name), "expected the name of a parameter")
		v.condition(at.entry(name), query[name])
	}
}

// matchHeaders reports conditions that no request can meet.
func (v *validator) matchHeaders(at path, headers map[string]Condition) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		shown, c := at.entry(name), headers[name]
		lower, value := strings.ToLower(name), c.Text
		switch c.Is {
		case IsRegex:
			value = ""
		case IsPrefix: // a space may follow
			value = strings.TrimRight(value, " \t")
		}
		switch {
		case !isHeaderName(name):
			v.report(shown, "expected the name of a header, got %q", name)
		case lower == "host":
			v.report(shown, "expected match.host for the host")
		case strings.HasPrefix(lower, "x-remora-"):
			v.report(shown, "the sidecar removes its own headers before it matches routes")
		case value != strings.Trim(value, " \t") || strings.ContainsAny(value, "\r\n\x00"):
			v.report(c.at(shown), "expected the value of a header, without spaces around it, got %q", value)
		default:
			v.condition(shown, c)
		}
	}
}

// isHeaderName reports whether a name is a token (RFC 9110 section 5.6.2).
func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// matchPath reports prefixes that no path has, or only by accident.
func (v *validator) matchPath(at path, m *Match) {
	for _, c := range []struct{ key, prefix string }{{"path", m.Path}, {"prefix_text", m.PrefixText}} {
		v.refuseIf(c.prefix != "" && !strings.HasPrefix(c.prefix, "/"),
			at.key(c.key), `expected a path that starts with "/", got %q`, c.prefix)
	}
	v.refuseIf(m.Path != "" && m.PrefixText != "", at.key("prefix_text"), "contradicts path")
	v.refuseIf(strings.HasPrefix(m.Path, "/") && !isNormal(m.Path), at.key("path"),
		"no request has such a path: expected no empty or dot segment, no query, and escapes in capitals of other"+
			" than letters, digits and -._~; got %q", m.Path)
	if m.Regex != "" {
		v.regex(at.key("regex"), m.Regex)
	}
}

// rewrite reports a replacement that would join wrongly with the rest of the path: if
// /api replaced the text /v1/, /v1/users would become /apiusers.
func (v *validator) rewrite(at path, r *Route) {
	from, to := r.Match.PrefixText, r.Rewrite.Path
	switch {
	case to == "":
	case from == "" && r.Match.Path == "":
		v.report(at, "replaces match.path, which is not set")
	case from != "" && strings.HasPrefix(to, "/") && strings.HasSuffix(from, "/") != strings.HasSuffix(to, "/"):
		v.report(at, `expected it to end in "/" if and only if match.prefix_text does, %q; got %q`, from, to)
	default:
		v.newPath(at, to)
	}
}

// routePolicies checks the policy of a route and those of its shares. Errors in
// inherited settings were reported where these are set.
func (v *validator) routePolicies(at path, r *Route) {
	var inherited []*Policy
	inherit := func(service string) {
		if s := v.config.Services[service]; s != nil {
			inherited = append(inherited, &s.Policy)
		}
	}
	inherit(r.Service)
	v.policy(at, &r.Policy, inherited)
	inherited = append(inherited, &r.Policy)
	for i := range r.Split {
		s := &r.Split[i]
		inherit(s.Name)
		v.policy(at.key("service").item(i), &s.Policy, inherited)
	}
}

func (v *validator) policy(at path, p *Policy, inherited []*Policy) {
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return slices.Equal(p.Retry.On, q.Retry.On) }) {
		v.retry(at, p)
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool {
		return p.Retry.PerTryTimeout == q.Retry.PerTryTimeout && p.Timeout == q.Timeout
	}) {
		v.tryTimeout(at, p)
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return p.Hedge == q.Hedge && p.Timeout == q.Timeout }) {
		v.hedge(at, p)
	}
}

// split reports a split without weight, and shares whose service is missing, listed
// twice or of the wrong protocol.
func (v *validator) split(at path, shares []Share, m *Match) {
	sum, seen := 0, map[string]bool{}
	for i, s := range shares {
		item := at.item(i)
		switch {
		case s.Name == "":
			v.report(item.key("name"), "missing; a share needs a service")
		case seen[s.Name]:
			v.report(item.key("name"), "%s is listed twice", s.Name)
		default:
			v.reference(item.key("name"), s.Name)
			v.routeTarget(item.key("name"), s.Name, m)
		}
		seen[s.Name] = true
		sum += s.Weight
	}
	v.refuseIf(sum == 0, at, "every weight is 0: no request could go anywhere")
}

// condition reports one that says nothing, and a wrong expression.
func (v *validator) condition(shown path, c Condition) {
	switch at := c.at(shown); {
	case c.Is == IsRegex:
		v.regex(at, c.Text)
	case c.Is == IsPrefix && c.Text == "":
		v.report(at, "empty; present: true matches every value")
	}
}

func (v *validator) regex(at path, text string) {
	if _, err := CompileRegex(text); err != nil {
		v.report(at, "%s", err)
	}
}

// answer reports errors of a route that leads to no service.
func (v *validator) answer(at path, r *Route) {
	kind := "respond"
	if r.Redirect.Given() {
		kind = "redirect"
		v.redirect(at.key(kind), r)
	}
	v.refuseIf(r.Redirect.Given() && r.Respond.Given(), at.key("respond"), "contradicts redirect")
	v.refuseIf(r.Service != "", at.key("service"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(r.Fault.Enabled(), at.key("fault"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(r.Mirror.Enabled(), at.key("mirror"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(r.Fallback.Given(), at.key("fallback"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(r.Cache.Enabled(), at.key("cache"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(r.Collapse, at.key("collapse"), "contradicts %s: the route answers itself", kind)
	v.refuseIf(v.routeProtocol(&r.Match) != ProtocolHTTP, at.key(kind), "answers only HTTP requests, and only Dubbo calls come here")
	v.refuseIf(slices.Contains(r.Match.Method, "CONNECT"), at.key("match").key("method"), "contradicts %s: a tunnel needs a service", kind)
	if r.Respond.Given() {
		v.respond(at.key("respond"), &r.Respond)
		v.refuseIf(r.Rewrite.Path != "", at.key("respond"), "contradicts rewrite.path: nothing is sent on")
	}
}

func (v *validator) redirect(at path, r *Route) {
	to := &r.Redirect
	if to.Status != 0 && !slices.Contains([]int{301, 302, 303, 307, 308}, to.Status) {
		v.report(at.key("status"), "expected 301, 302, 303, 307 or 308, got %d", to.Status)
	}
	v.refuseIf(!slices.Contains([]string{"", "http", "https"}, to.Scheme), at.key("scheme"), "expected http or https, got %q", to.Scheme)
	v.newHost(at.key("host"), to.Host)
	if to.Path != "" {
		v.newPath(at.key("path"), to.Path)
		v.refuseIf(strings.HasPrefix(to.Path, "//"), at.key("path"), `expected one "/" at the start: clients take two for a host`)
		v.refuseIf(r.Rewrite.Path != "", at.key("path"), "contradicts rewrite.path")
	}
	v.refuseIf(to.Scheme+to.Host+to.Path+r.Rewrite.Path == "", at, "leads to the same URL; expected scheme, host, path or rewrite.path")
}

func (v *validator) respond(at path, to *Respond) {
	v.refuseIf(to.Status != 0 && to.Status < 200, at.key("status"), "expected 200 to 599, got %d", to.Status)
	v.refuseIf((to.Status == 204 || to.Status == 304) && to.Body != "", at.key("body"), "a response with the status %d has no body", to.Status)
	v.refuseIf(len(to.Body) > maxBody, at.key("body"), "expected at most %s, got %d bytes", formatSize(maxBody), len(to.Body))
	v.headerValues(at.key("headers"), to.Headers)
}

// newHost reports a text that can't take the place of a host. Empty means none does.
func (v *validator) newHost(at path, to string) {
	isBad := func(c rune) bool { return c > '~' || !isUnreserved(byte(c)) && !strings.ContainsRune(":[]", c) }
	v.refuseIf(len(to) > maxRewrite || strings.ContainsFunc(to, isBad), at, "expected a host with or without a port, got %q", to)
}

// rewriteHost reports a host that nobody would get.
func (v *validator) rewriteHost(at path, r *Route) {
	v.newHost(at, r.Rewrite.Host)
	v.refuseIf(r.Rewrite.Host != "" && r.Answers(), at, "nothing is sent on; redirect.host is where clients are sent")
	v.refuseIf(v.routeProtocol(&r.Match) != ProtocolHTTP && (r.Rewrite.Host != "" || r.RequestHeaders.Given() || r.ResponseHeaders.Given()),
		at.parent().parent(), "only Dubbo calls come here, and they have no host and no headers")
}

// newPath reports a text that can't take the place of a path, or of a part of it.
func (v *validator) newPath(at path, to string) {
	isBad := func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }
	switch {
	case !strings.HasPrefix(to, "/") || strings.ContainsFunc(to, isBad):
		v.report(at, `expected a path that starts with "/", got %q`, to)
	case len(to) > maxRewrite:
		v.report(at, "expected at most %d bytes, got %d", maxRewrite, len(to))
	}
}

// headerEdits reports headers that a route may not change, or changes twice.
func (v *validator) headerEdits(at path, e *HeaderEdits) {
	v.headerValues(at.key("set"), e.Set)
	v.headerValues(at.key("add"), e.Add)
	v.refuseIf(len(e.Remove) > maxEdits, at.key("remove"), "expected at most %d headers, got %d", maxEdits, len(e.Remove))
	listed := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		listed[strings.ToLower(name)] = "set"
	}
	for _, name := range slices.Sorted(maps.Keys(e.Add)) {
		v.refuseIf(listed[strings.ToLower(name)] != "", at.key("add").entry(name), "contradicts set")
		listed[strings.ToLower(name)] = "add"
	}
	for i, name := range e.Remove {
		shown, lower := at.key("remove").item(i), strings.ToLower(name)
		v.headerName(shown, name)
		v.refuseIf(listed[lower] == "set", shown, "needless: set replaces %s", name)
		v.refuseIf(listed[lower] == "remove", shown, "%q is listed twice", name)
		if listed[lower] == "" {
			listed[lower] = "remove"
		}
	}
}

// headerName reports a header that a route may not change.
func (v *validator) headerName(at path, name string) {
	switch lower := strings.ToLower(name); {
	case !isHeaderName(name):
		v.report(at, "expected the name of a header, got %q", name)
	case lower == "host":
		v.report(at, "expected rewrite.host for the host")
	case slices.Contains(keptHeaders, lower) || strings.HasPrefix(lower, "x-remora-"):
		v.report(at, "%s belongs to the connection, the framing or the sidecar: a route can't change it", name)
	}
}

// headerValues reports names and values that can't be set.
func (v *validator) headerValues(at path, all map[string]string) {
	v.refuseIf(len(all) > maxEdits, at, "expected at most %d headers, got %d", maxEdits, len(all))
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		shown, value := at.entry(name), all[name]
		v.headerName(shown, name)
		v.refuseIf(seen[strings.ToLower(name)], shown, "is listed twice, in another case")
		seen[strings.ToLower(name)] = true
		_, err := ParseValue(value)
		isBad := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
		switch {
		case strings.ContainsFunc(value, isBad) || value != strings.Trim(value, " \t"):
			v.report(shown, "expected the value of a header, without line breaks and without spaces around it")
		case len(value) > maxEditValue:
			v.report(shown, "expected at most %d bytes, got %d", maxEditValue, len(value))
		case err != nil:
			v.report(shown, "%s", err)
		}
	}
}

// mirror reports services that can't take copies, and routes without requests of HTTP.
func (v *validator) mirror(at path, r *Route) {
	name := r.Mirror.Service
	shown := at.key("service")
	if name == "" {
		v.refuseIf(r.Mirror.Share != 1, shown, "missing; a share alone copies nothing")
		return
	}
	v.refuseIf(v.routeProtocol(&r.Match) == ProtocolDubbo, at, "calls of Dubbo are not copied")
	v.copiesTo(shown, name, ProtocolHTTP)
}

// copiesTo reports a service that can't take copies of requests of a protocol.
func (v *validator) copiesTo(at path, name, protocol string) {
	v.reference(at, name)
	switch s := v.config.Services[name]; {
	case s == nil:
	case s.Protocol != protocol && s.Protocol != ProtocolLink && !(protocol == ProtocolHTTP && s.SpeaksHTTP()):
		v.report(at, "service %s speaks %s; expected one with protocol: %s or %s", name, s.Protocol, ProtocolLink, protocol)
	case s.Allow.Given():
		v.report(at, "service %s has allow rules, which are for callers: a copy has none", name)
	}
}

// fallback reports fallbacks without an answer, or with one that callers can't have.
func (v *validator) fallback(at path, r *Route) {
	f, protocol := &r.Fallback, v.routeProtocol(&r.Match)
	if !f.Given() {
		v.refuseIf(!f.isDefault(), at, "expected respond or service, which says what the fallback is")
		return
	}
	v.refuseIf(len(f.On) == 0, at.key("on"), "empty: the fallback is for nothing")
	for i, reason := range f.On {
		shown := at.key("on").item(i)
		v.refuseIf(!slices.Contains(FallbackReasons[:], reason), shown, "expected one of %s, got %q%s",
			strings.Join(FallbackReasons[:], ", "), reason, didYouMean(reason, FallbackReasons[:]))
		v.refuseIf(slices.Contains(f.On[:i], reason), shown, "%q is listed twice", reason)
	}
	if f.Service == "" {
		v.refuseIf(protocol == ProtocolDubbo, at.key("respond"), "only Dubbo calls come here, and this is a response of HTTP; expected service")
		v.refuseIf(f.Timeout != defaultFallback().Timeout, at.key("timeout"), "is for service: the response is at hand")
		v.respond(at.key("respond"), &f.Respond)
		for _, name := range slices.Sorted(maps.Keys(f.Respond.Headers)) {
			parts, _ := ParseValue(f.Respond.Headers[name])
			v.refuseIf(slices.ContainsFunc(parts, func(p Part) bool { return p.Placeholder != "" }),
				at.key("respond").key("headers").entry(name), "placeholders are not filled in here; expected {{ for a brace")
		}
		return
	}
	v.refuseIf(f.Respond.Given(), at.key("respond"), "contradicts service")
	v.refuseIf(slices.Contains(r.services(), f.Service), at.key("service"), "the route leads to %s itself", f.Service)
	v.copiesTo(at.key("service"), f.Service, protocol)
}

// fault reports statuses that are no errors, shares of nothing, and delays that only end in a
// deadline.
func (v *validator) fault(at path, r *Route) {
	f := &r.Fault
	v.refuseIf(f.Abort > 0 && f.Abort < 400, at.key("abort"), "expected a status from 400 to 599, got %d", f.Abort)
	v.refuseIf(f.Delay == 0 && f.DelayShare != 1, at.key("delay"), "missing; delay_share alone delays nothing")
	v.refuseIf(f.Abort == 0 && f.AbortShare != 1, at.key("abort"), "missing; abort_share alone aborts nothing")
	for _, p := range r.policies() {
		if f.Delay >= p.Timeout {
			v.report(at.key("delay"), "%s is not less than the timeout of %s: expected abort: 504 to try out timeouts", f.Delay, p.Timeout)
			return
		}
	}
}

// cache reports keys that name no header, and routes whose responses nobody could share.
func (v *validator) cache(at path, r *Route) {
	given := map[string]bool{"cache": r.Cache.Enabled(), "collapse": r.Collapse}
	for _, kind := range []string{"cache", "collapse"} {
		if !given[kind] {
			continue
		}
		v.refuseIf(v.routeProtocol(&r.Match) == ProtocolDubbo, at.key(kind), "is for requests of HTTP, and only Dubbo calls come here")
		for _, name := range r.services() {
			if s := v.config.Services[name]; s != nil && s.Protocol == ProtocolGRPC {
				v.report(at.key(kind), "service %s speaks grpc: calls of gRPC are neither cached nor collapsed", name)
			}
		}
	}
	v.refuseIf(r.Cache.Enabled() && r.Cache.Bytes < leastCache, at.key("cache").key("bytes"), "expected at least %s, or 0 for no cache", formatSize(leastCache))
	v.cacheHeaders(at.key("cache").key("key"), r.Cache.Key, nil)
	v.cacheHeaders(at.key("cache").key("ignore"), r.Cache.Ignore, r.Cache.Key)
}

// cacheHeaders reports lists of headers that are too long, and names that are none, or listed twice or in
// other, too.
func (v *validator) cacheHeaders(at path, names, other []string) {
	v.refuseIf(len(names) > maxCacheHeaders, at, "expected at most %d headers, got %d", maxCacheHeaders, len(names))
	for i, name := range names {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		v.refuseIf(!isHeaderName(name), at.item(i), "expected the name of a header, got %q", name)
		v.refuseIf(slices.ContainsFunc(names[:i], same), at.item(i), "%q is listed twice", name)
		v.refuseIf(slices.ContainsFunc(other, same), at.item(i), "%q is part of the key", name)
	}
}

// maxCacheHeaders bounds the headers of a cache's key, and those that are ignored, leastCache its bytes.
const (
	maxCacheHeaders = 8
	leastCache      = 1 << 20
)

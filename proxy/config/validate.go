package config

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/bindaddr"
	"github.com/remora-proxy/remora/internal/unixaddr"
)

// validator finds errors that involve several values: references to nothing,
// duplicate names and addresses, contradictions.
type validator struct {
	config *Config
	report func(at path, format string, args ...any)
	warn   func(at path, format string, args ...any) // of a valid configuration

	matches map[string]int // routes by the text of their matches
}

// reached complains about a route behind another route that takes all its requests: with the same match, or
// with none.
func (v *validator) reached(at path, i int, m *Match) {
	first := i
	for _, same := range []Match{m.canonical(), {}} {
		if j, earlier := v.matches[same.text()]; earlier {
			first = min(first, j)
		}
	}
	if first < i {
		v.report(at, "never reached: routes[%d] matches all requests that this one does", first)
		return
	}
	v.matches[m.canonical().text()] = i
}

// refuseIf reports an error if wrong is true.
func (v *validator) refuseIf(wrong bool, at path, format string, args ...any) {
	if wrong {
		v.report(at, format, args...)
	}
}

func (v *validator) validate() {
	c := v.config
	v.node()
	v.admin()
	v.etcd()
	v.listeners()
	v.accessLog()
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		v.service(c.Services[name])
	}
	for i := range c.Routes {
		v.route(i, &c.Routes[i])
	}
	for i := range c.Register {
		v.register(i, &c.Register[i])
	}
	v.loops()
	v.allowRules()
	v.tracing()
	v.refuseIf(c.Limits.Message > c.Limits.Buffered, "limits.message",
		"larger than limits.buffered (%s), so no such message could pass",
		formatSize(c.Limits.Buffered))
}

// node checks the node's ID, which becomes part of a registry key.
func (v *validator) node() {
	id := v.config.Node.ID
	v.refuseIf(id == "" || strings.ContainsAny(id, "/@ \t\n"),
		"node.id", "expected a name without spaces, / and @, got %q", id)
}

func (v *validator) admin() {
	addr, token := v.config.Admin.Address, v.config.Admin.Token
	v.refuseIf(strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }),
		"admin.token", "expected ASCII without spaces, because a header carries it")
	if addr == "" || !v.socketAddress("admin.address", addr, bindable) {
		return
	}
	v.refuseIf(token == "" && !isLoopback(addr), "admin.address",
		"expected a loopback address; on any other the admin API needs admin.token")
}

// accessLog reports settings without a path, and a log that would be empty.
func (v *validator) accessLog() {
	l := &v.config.AccessLog
	switch {
	case l.Path == "" && *l != Default().AccessLog:
		v.report("access_log.path", "missing; expected a file, stdout or stderr")
	case l.Sample == 0 && l.Slow == 0 && !l.Failed:
		v.report("access_log.sample", "0 without slow or failed: no request would be logged")
	}
	if _, err := l.Parts(); err != nil {
		v.report("access_log.format", "%v", err)
	}
}

func (v *validator) etcd() {
	e := &v.config.Registry.Etcd
	for i, endpoint := range e.Endpoints {
		shown := path("registry.etcd.endpoints").item(i)
		scheme, addr, ok := strings.Cut(endpoint, "://")
		if !ok {
			scheme, addr = "http", endpoint
		}
		switch scheme {
		case "http", "https":
			v.address(shown, addr, dialable)
		default:
			v.report(shown, "expected host:port, http://host:port or https://host:port, got %q", public(endpoint))
		}
	}
	v.etcdTLS()
	v.refuseIf(!strings.HasPrefix(e.Prefix, "/") || strings.HasSuffix(e.Prefix, "/"),
		"registry.etcd.prefix", "expected a path such as /remora/services, got %q", e.Prefix)
	v.refuseIf(e.LeaseTTL%time.Second != 0,
		"registry.etcd.lease_ttl", "expected whole seconds, got %s", e.LeaseTTL)
	v.refuseIf((e.Username == "") != (e.Password == ""),
		"registry.etcd", "username and password must be set together")
}

func (v *validator) listeners() {
	c := v.config
	names, sockets := map[string]int{}, []socket{socketOf("admin.address", c.Admin.Address)}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		at := path("listeners").item(i)
		first, dup := names[l.Name]
		switch {
		case l.Name == "":
			v.report(at.key("name"), "missing; a listener needs a name")
		case dup:
			v.report(at.key("name"), "%q is already the name of listeners[%d]", l.Name, first)
		default:
			names[l.Name] = i
		}
		if v.socketAddress(at.key("address"), l.Address, bindable) && !strings.HasSuffix(l.Address, ":0") {
			here := socketOf(at.key("address"), l.Address)
			v.freeAddress(here, sockets)
			sockets = append(sockets, here)
		}
		v.listener(at, l)
	}
}

// socket is a listening socket, and the setting that has its address.
type socket struct {
	setting path
	address string
	at      netip.AddrPort // of address, if isIP
	isIP    bool
}

func socketOf(setting path, address string) socket {
	at, isIP := bindaddr.Parse(address)
	return socket{setting, address, at, isIP}
}

// freeAddress checks that the system can have one socket beside others.
func (v *validator) freeAddress(s socket, others []socket) {
	for _, other := range others {
		switch {
		case s.address == other.address:
			v.report(s.setting, "%s is already used by %s", s.address, other.setting)
			return
		case s.isIP && other.isIP && bindaddr.Overlap(s.at, other.at):
			v.report(s.setting, "%s overlaps %s, the address of %s", s.address, other.address, other.setting)
			return
		}
	}
}

func (v *validator) listener(at path, l *Listener) {
	switch l.Protocol {
	case "":
		v.report(at.key("protocol"), "missing; expected one of %s", strings.Join(ListenerProtocols, ", "))
	case ProtocolLink:
		v.refuseIf(l.Address != "" && !isLoopback(l.Address) && !l.Insecure && !l.TLS.Enabled(),
			at, "a link that is not on loopback needs tls, or insecure: true")
		v.refuseIf(l.Insecure && l.TLS.Enabled(), at.key("insecure"), "contradicts tls")
		v.refuseIf(l.Service == "",
			at.key("service"), "missing; a link listener needs the service that takes its traffic")
	default:
		v.refuseIf(l.Insecure,
			at.key("insecure"), "only a link listener can be insecure; this one is %s", l.Protocol)
		isTCP := l.Protocol == ProtocolTCP
		v.refuseIf(l.Service == "" && isTCP && !v.hasRoutes(true), at.key("service"),
			"missing, and no route has match.sni; a tcp listener needs the service that takes its connections, or such routes")
		v.refuseIf(l.Service == "" && !isTCP && !v.hasRoutes(false) && l.Unrouted != UnroutedDirect,
			at.key("service"), "missing, and there are no routes: no request could be answered")
	}
	v.socketMode(at.key("mode"), l)
	v.proxyProtocol(at.key("proxy_protocol"), l)
	v.refuseIf((l.Protocol != ProtocolHTTP || l.Service != "") && l.Path != DefaultPath(),
		at.key("path"), "only an http listener without a service looks at paths")
	v.rateLimit(at, &l.RateLimit)
	v.rateKey(at, &l.RateLimit, l.Protocol == ProtocolDubbo)
	v.refuseIf(l.Protocol == ProtocolTCP && l.RateLimit != RateLimit{}, at.key("rate_limit"),
		"a tcp listener sees no requests; expected it at the service")
	v.forwarded(at.key("forwarded"), l)
	v.direct(at, l)
	v.refuseIf(l.Protocol != ProtocolHTTP && l.Expect == ExpectForward, at.key("expect"), "only an http listener has clients that wait")
	if l.Transparent {
		v.transparent(at, l)
	}
	if l.Service != "" {
		v.reference(at.key("service"), l.Service)
		if l.Protocol != ProtocolLink { // a link carries requests and tcp
			v.protocols(at.key("service"), l.Service, l.Protocol)
		} else if s := v.config.Services[l.Service]; s != nil {
			v.refuseIf(s.LB.Sticky.Cookie != "", at.key("service"),
				"service %s has lb.sticky, and requests on links come from sidecars that have picked; expected it there", l.Service)
		}
	}
	v.listenerTLS(at.key("tls"), l)
}

// transparent reports settings that a transparent listener can't have.
func (v *validator) transparent(at path, l *Listener) {
	shown := at.key("transparent")
	switch {
	case l.Protocol != ProtocolHTTP:
		v.report(shown, "only an http listener can be transparent; this one is %s", l.Protocol)
	case l.Service != "":
		v.report(shown, "contradicts service: the routes decide which requests go to a service and which pass through")
	case l.TLS.Enabled():
		v.report(shown, "contradicts tls: connections that pass through must stay unchanged")
	case l.ProxyProtocol.Enabled():
		v.report(shown, "contradicts proxy_protocol: the kernel redirects connections, and no proxy makes them")
	case unixaddr.Is(l.Address):
		v.report(shown, "the kernel redirects no connections to a Unix socket")
	}
}

// reference reports the name of a service that does not exist.
func (v *validator) reference(at path, name string) {
	if _, ok := v.config.Services[name]; ok {
		return
	}
	names := slices.Sorted(maps.Keys(v.config.Services))
	v.report(at, "there is no service %q%s", name, knownNames(name, names))
}

func (v *validator) route(i int, r *Route) {
	at := path("routes").item(i)
	if r.Match.SNI != "" {
		v.sniRoute(i, r)
		return
	}
	switch {
	case r.Answers():
		v.answer(at, r)
	case len(r.Split) > 0:
		v.split(at.key("service"), r.Split, &r.Match)
	case r.Service == "":
		v.report(at.key("service"), "missing; a route needs a service, redirect or respond")
	default:
		v.reference(at.key("service"), r.Service)
		v.routeTarget(at.key("service"), r.Service, &r.Match)
	}
	match := at.key("match")
	v.matchPath(match, &r.Match)
	v.matchHost(match.key("host"), r.Match.Host)
	v.matchHeaders(match.key("header"), r.Match.Header)
	v.matchQuery(match.key("query"), r.Match.Query)
	v.rewrite(at.key("rewrite").key("path"), r)
	v.rewriteHost(at.key("rewrite").key("host"), r)
	v.headerEdits(at.key("request_headers"), &r.RequestHeaders)
	v.headerEdits(at.key("response_headers"), &r.ResponseHeaders)
	v.matchDubbo(match, &r.Match)
	v.methods(match.key("method"), &r.Match)
	v.reached(at, i, &r.Match)
	v.routePolicies(at, r)
	v.rateLimit(at, &r.RateLimit)
	v.rateKey(at, &r.RateLimit, r.Match.OfDubbo())
	v.fault(at.key("fault"), r)
	v.mirror(at.key("mirror"), r)
	v.fallback(at.key("fallback"), r)
	v.cache(at, r)
}

func (v *validator) retry(at path, p *Policy) {
	on := at.key("retry").key("on")
	for i, condition := range p.Retry.On {
		shown := on.item(i)
		switch {
		case condition == "timeout":
			v.report(shown, "%s includes an attempt that had no response within per_try_timeout", RetryReset)
		case !isRetryCondition(condition):
			v.report(shown, "expected one of %s, a status such as 503 or a code of gRPC such as unavailable, got %q%s",
				strings.Join(retryConditions, ", "), condition, didYouMean(condition, slices.Concat(retryConditions, GRPCErrors)))
		case slices.Contains(p.Retry.On[:i], condition):
			v.report(shown, "%q is listed twice", condition)
		}
	}
}

// tryTimeout checks the timeout of an attempt.
func (v *validator) tryTimeout(at path, p *Policy) {
	v.refuseIf(p.Retry.PerTryTimeout >= p.Timeout, at.key("retry").key("per_try_timeout"),
		"%s is not less than the timeout of %s, so it would end no attempt", p.Retry.PerTryTimeout, p.Timeout)
}

var retryConditions = []string{RetryConnect, RetryRefused, RetryReset, Retry5xx}

// isRetryCondition reports whether s is a named condition, a code of gRPC or a 5xx status.
func isRetryCondition(s string) bool {
	status, err := strconv.Atoi(s)
	return slices.Contains(retryConditions, s) || slices.Contains(GRPCErrors, s) || err == nil && len(s) == 3 && status >= 500 && status <= 599
}

// hedge checks the delays. It checks the timeout and the budget only if hedging is on: shadow
// mode, the default, forecasts whatever is configured.
func (v *validator) hedge(at path, p *Policy) {
	h, at := &p.Hedge, at.key("hedge")
	v.refuseIf(h.MinDelay > h.MaxDelay,
		at.key("min_delay"), "%s is more than max_delay, %s", h.MinDelay, h.MaxDelay)
	v.refuseIf(!isHeaderName(h.Class) || strings.HasPrefix(strings.ToLower(h.Class), "x-remora-"),
		at.key("class"), "expected size, none or the name of a header, got %q", h.Class)
	if h.Mode != HedgeOn {
		return
	}
	v.refuseIf(h.Delay >= p.Timeout, at.key("delay"),
		"%s is not less than the timeout of %s, so no hedge would ever be sent", h.Delay, p.Timeout)
	// Some slack for values that binary fractions can't represent, such as 1-0.9.
	const slack = 1e-9
	if share := 1 - h.Quantile; h.Delay == 0 && share >= h.Budget-slack {
		v.report(at.key("quantile"),
			"leaves no room under the budget: past the %g-quantile, %.3g of all requests would hedge, and the budget is %g;"+
				" expected a quantile above %.4g", h.Quantile, share, h.Budget, 1-h.Budget)
	}
}

// tracing checks the receiver, the service name and the headers of exports.
func (v *validator) tracing() {
	t := &v.config.Tracing
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		v.report("tracing.endpoint", "expected the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318, got %q",
			public(t.Endpoint))
	}
	v.refuseIf(t.ServiceName == "", "tracing.service_name", "expected a name")
	headers := func(name string) path { return path("tracing.headers").entry(keyAlone(name)) }
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		lower := strings.ToLower(name)
		v.refuseIf(!isHeaderName(name) || lower == "content-type" || lower == "host",
			headers(name), "expected the name of a header other than Content-Type and Host")
		isBad := func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }
		v.refuseIf(strings.ContainsFunc(t.Headers[name], isBad),
			headers(name), "expected ASCII without line breaks, because a header carries it")
	}
}

// direct reports a listener that can't pass requests on to the hosts that they name, and entries
// that match nothing.
func (v *validator) direct(at path, l *Listener) {
	shown, allow := at.key("unrouted"), l.Direct.Allow
	if l.Unrouted != UnroutedDirect {
		v.refuseIf(len(allow) > 0, at.key("direct"), "has no effect without unrouted: direct")
		return
	}
	switch {
	case l.Protocol != ProtocolHTTP:
		v.report(shown, "only an http listener has requests without a route; this one is %s", l.Protocol)
	case l.Service != "":
		v.report(shown, "contradicts service: all requests go to it")
	case l.Transparent:
		v.report(shown, "contradicts transparent: what no route matches passes through to where it was going")
	case l.ProxyProtocol.Enabled() && len(allow) == 0:
		v.report(shown, "the clients of a proxy may be anywhere, and could reach anything through this listener; list what they may in direct.allow")
	case !isLoopback(l.Address) && len(allow) == 0:
		v.report(shown, "this listener is not on loopback, so others could reach anything through it; list what they may in direct.allow")
	}
	for i, text := range allow {
		entry := at.key("direct").key("allow").item(i)
		d, err := parseDestination(text)
		switch {
		case err != nil:
			v.report(entry, "%s", err)
		case d.Name == "localhost" || strings.HasSuffix(d.Name, ".localhost"):
			v.report(entry, "never matches: addresses of loopback need an entry of their own, such as 127.0.0.1")
		case slices.Contains(allow[:i], text):
			v.report(entry, "%q is listed twice", text)
		}
	}
}

package config

import (
	"fmt"
	"maps"
	slashpath "path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/hostname"
)

// Match selects requests. Every condition that is set must hold; the zero Match
// takes all. Host, Path, PrefixText, Regex, Header and Query select HTTP requests alone, Service,
// Version and Group select Dubbo calls alone, SNI selects connections alone.
type Match struct {
	// Host of the request without port, [however it is spelled](strictness.md#names). `*.svc` matches `a.svc` and `a.b.svc`, not `svc`.
	Host string `yaml:"host"`
	// Prefix of the path, of whole segments: `/api` and `/api/` match `/api`, `/api/` and `/api/x`, not `/apis`. Begins with `/`.
	Path string `yaml:"path"`
	// Prefix of the path as text, instead of `path`: `/api` matches `/apis`, too. Begins with `/`.
	PrefixText string `yaml:"prefix_text"`
	// [Expression](routing.md#expressions) for the whole path, without the query.
	Regex string `yaml:"regex"`
	// One of these methods, of HTTP or of a Dubbo interface.
	Method []string `yaml:"method"`
	// [Conditions](routing.md#conditions) on values. Names in any case. Several lines of a name are one value, joined with `, `.
	Header map[string]Condition `yaml:"header"`
	// [Conditions](routing.md#conditions) on parameters of the query, decoded. Of several with a name the first counts.
	Query map[string]Condition `yaml:"query"`

	// Name in the ClientHello of a connection to a `tcp` listener, in any case. `*.example.com` takes any one label for `*`; `*` takes every connection, also without a name. No other condition can be set.
	SNI string `yaml:"sni"`

	// Dubbo: the interface, or the path that the provider exports it by.
	Service string `yaml:"service"`
	// Dubbo: version of the service.
	Version string `yaml:"version"`
	// Dubbo: group of the service.
	Group string `yaml:"group"`
}

// OfHTTP reports whether m selects HTTP requests alone.
func (m *Match) OfHTTP() bool {
	return m.Host != "" || m.Path != "" || m.PrefixText != "" || m.Regex != "" || len(m.Header) > 0 || len(m.Query) > 0
}

// TakesServerName reports whether a route of connections takes one to name; empty means that the
// client has sent none.
func (m *Match) TakesServerName(name string) bool {
	if m.SNI == "*" {
		return true
	}
	if suffix, isWild := strings.CutPrefix(m.SNI, "*"); isWild {
		dot := strings.IndexByte(name, '.')
		return dot > 0 && strings.EqualFold(name[dot:], suffix)
	}
	return name != "" && strings.EqualFold(m.SNI, name)
}

// OfDubbo reports whether m selects Dubbo calls alone.
func (m *Match) OfDubbo() bool { return m.Service != "" || m.Version != "" || m.Group != "" }

// HasRoutes reports whether the routes direct the HTTP requests of l.
func (l *Listener) HasRoutes() bool { return l.Protocol == ProtocolHTTP && l.Service == "" }

// Route sends what it matches to a service, or splits it between several.
type Route struct {
	Match Match `yaml:"match"`

	// Name of a service, or a list of shares. Required without `redirect` and `respond`.
	Service string  `yaml:"service"`
	Split   []Share `yaml:"-"` // the list of shares, whose first is Service; empty if the file gives a name

	Rewrite         Rewrite     `yaml:"rewrite"`
	Redirect        Redirect    `yaml:"redirect"`
	Respond         Respond     `yaml:"respond"`
	RequestHeaders  HeaderEdits `yaml:"request_headers"`
	ResponseHeaders HeaderEdits `yaml:"response_headers"`
	RateLimit       RateLimit   `yaml:"rate_limit"`
	Allow           Allow       `yaml:"allow"`
	Fault           Fault       `yaml:"fault"`
	Mirror          Mirror      `yaml:"mirror"`
	Fallback        Fallback    `yaml:"fallback"`
	Cache           Cache       `yaml:"cache"`
	// Same requests that are in flight on one loop share one request to the service and its response.
	Collapse bool `yaml:"collapse"`

	// Policy is the effective one: that of Service, overridden field by field
	// by what the route sets. Each Share of a Split has its own.
	Policy `yaml:",inline"`
}

// Share is a service's part of a split route.
type Share struct {
	// Name of a service.
	Name string `yaml:"name"`
	// Part of the sum of weights. 0 means no requests; not all may be 0.
	Weight int `yaml:"weight" max:"65535"`

	// Policy is the effective one: that of the service, overridden by what the
	// route sets, and that by what the share sets.
	Policy `yaml:",inline"`
}

// RoutedServices returns the names of the services that a listener or a route leads to, sorted.
func (c *Config) RoutedServices() []string {
	names := map[string]bool{}
	for i := range c.Listeners {
		names[c.Listeners[i].Service] = true
	}
	for i := range c.Routes {
		for _, name := range c.Routes[i].services() {
			names[name] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// services returns the names of the services of a route.
func (r *Route) services() (names []string) {
	if len(r.Split) == 0 {
		return []string{r.Service}
	}
	for i := range r.Split {
		names = append(names, r.Split[i].Name)
	}
	return names
}

// Rewrite changes a request on its way.
type Rewrite struct {
	// Replaces the prefix that matched; a `/` at the end of `match.path` or of this counts for nothing. With `prefix_text` both end with `/`, or neither does. At most 1024 bytes.
	Path string `yaml:"path"`
	// Host, with or without a port, that the service gets in place of the client's.
	Host string `yaml:"host"`
}

// Policy is what a route may override of its service.
type Policy struct {
	// For the whole request, all attempts included. Then 504 `deadline`.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
	// Every request may be sent twice. Otherwise only GET, HEAD and those with `x-remora-idempotent: 1` may.
	Idempotent bool `yaml:"idempotent"`
	// `batch` requests wait for the others. The header `x-remora-priority: batch` says it of one request.
	Priority string `yaml:"priority" oneof:"online batch"`
	Retry    Retry  `yaml:"retry"`
	Hedge    Hedge  `yaml:"hedge"`
}

// Retry says when a failed attempt is followed by another.
type Retry struct {
	// Retries that cost a token of `hedge.budget`. Retries and hedges together are at most 5. A request that surely reached no application is retried free, at up to 3 endpoints. If an endpoint refused it, that needs one that has room.
	Attempts int `yaml:"attempts" min:"1" max:"10"`
	// `connect`, `refused`, `reset`, `5xx`, a status such as `"503"`, or a [code of gRPC](grpc.md) such as `unavailable`. Empty means never. `reset`, statuses and codes need an idempotent request.
	On []string `yaml:"on"`
	// For each attempt, below `timeout`. Then it has failed as after a `reset`: retried, or 504 `upstream-timeout`. 0 means none.
	PerTryTimeout time.Duration `yaml:"per_try_timeout"`
}

// Hedge says when a second attempt runs beside a slow one.
type Hedge struct {
	// `shadow` only forecasts what hedging would do.
	Mode string `yaml:"mode" oneof:"off shadow on"`
	// Delay of the hedge, below `timeout`. `auto` or 0 means the `quantile` of latency.
	Delay time.Duration `yaml:"delay" auto:"0"`
	// For `auto`. 1 − quantile must be below `budget`.
	Quantile float64 `yaml:"quantile" in:"(0,1)"`
	// What tells the [class](hedging.md#classes) of a request: `size`, the name of a header, or `none`.
	Class string `yaml:"class"`
	// Lowest `auto` delay.
	MinDelay time.Duration `yaml:"min_delay"`
	// Highest `auto` delay, and the delay while samples are few.
	MaxDelay time.Duration `yaml:"max_delay"`
	// Hedges and paid retries per request. Without a token none is sent: gate `budget`.
	Budget float64 `yaml:"budget" in:"(0,1]"`
	// Hedges per request. Hedges and retries together are at most 5.
	Max int `yaml:"max" min:"1" max:"8"`
	// Share of the requests of which `shadow` makes its forecast.
	Sample float64 `yaml:"sample" in:"(0,1]"`
}

// isNormal reports whether normalization would keep a path, which begins with "/". An escaped
// slash is kept: listeners may keep it, too.
func isNormal(p string) bool {
	if p != "/" && slashpath.Clean(p) != strings.TrimSuffix(p, "/") || strings.ContainsAny(p, "?#") {
		return false
	}
	for _, escape := range strings.Split(p, "%")[1:] {
		if len(escape) < 2 || escape[:2] != strings.ToUpper(escape[:2]) {
			return false
		}
		c, err := strconv.ParseUint(escape[:2], 16, 8)
		if err != nil || c == 0 || isUnreserved(byte(c)) {
			return false
		}
	}
	return true
}

// isUnreserved reports whether a path has c itself and not its escape (RFC 3986 section 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// text is the same for equal matches, and for no others.
func (m Match) text() string { return fmt.Sprintf("%#v", m) }

// canonical returns m without what makes no difference.
func (m Match) canonical() Match {
	m.Host = hostname.Name(m.Host)
	if m.Path != "/" {
		m.Path = strings.TrimSuffix(m.Path, "/")
	}
	return m
}

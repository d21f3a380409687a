package config

import (
	"slices"
	"strings"
)

// Policies for names of headers with an underscore.
const (
	UnderscoresKeep   = "keep"   // sent on
	UnderscoresDrop   = "drop"   // removed
	UnderscoresReject = "reject" // the request is refused
)

// Forwarded says which clients a listener believes about earlier hops.
type Forwarded struct {
	// Trusted proxies in front: their number, or a list of CIDRs. 0 means none. Empty means every client of a listener on loopback, none elsewhere.
	Trust []string `yaml:"trust" single:"true" reload:"next connection"`
	// Headers removed from clients that are not trusted, also with `_` for `-`. Replaces the default.
	Strip []string `yaml:"strip" reload:"next connection"`
	// Names with an underscore: sent on, removed, or 400 `header-underscore`.
	Underscores string `yaml:"underscores" oneof:"keep drop reject" reload:"next connection"`
}

func (f *Forwarded) setDefaults() {
	*f = Forwarded{
		Underscores: UnderscoresKeep,
		Strip: []string{
			"Forwarded", "X-Forwarded", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix",
			"X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-Client-Cert", "X-Original-Forwarded-For", "X-Real-IP",
			"X-Client-IP", "X-Cluster-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "X-Envoy-Expected-Rq-Timeout-Ms",
		},
	}
}

// Trusts returns whom a listener trusts. loopback says that only its host can reach it.
func (f *Forwarded) Trusts(loopback bool) (t Trust) {
	if len(f.Trust) == 0 {
		return Trust{All: loopback}
	}
	if n, ok := f.hops(); ok {
		return Trust{Hops: n}
	}
	return Trust{From: prefixes(f.Trust)}
}

func (f *Forwarded) hops() (n int, ok bool) {
	if len(f.Trust) != 1 {
		return 0, false
	}
	x, err := parseInt(f.Trust[0])
	return int(x), err == nil && x >= 0
}

const maxHops = 255

// given reports whether a file sets any key.
func (f *Forwarded) given() bool {
	d := withDefaults[Forwarded]()
	return len(f.Trust) > 0 || f.Strip != nil && !slices.Equal(f.Strip, d.Strip) || f.Underscores != "" && f.Underscores != d.Underscores
}

// check reports proxies that can't be, and names of headers that have rules of their own.
func (f *Forwarded) check(in scope, at path) {
	if n, ok := f.hops(); ok {
		in.refuseIf(n > maxHops, at.key("trust"), "expected at most %d proxies, got %d", maxHops, n)
	} else {
		for i, text := range f.Trust {
			_, err := parsePrefix(text)
			in.refuseIf(err != nil, at.key("trust").item(i), "expected a number of proxies, or a list of CIDRs such as 10.0.0.0/8, got %q", text)
		}
	}
	in.refuseIf(in.listener.Protocol != ProtocolHTTP && f.given(), at, "only an http listener has headers of proxies; this one is %s", in.listener.Protocol)
	for i, name := range f.Strip {
		shown, lower := at.key("strip").item(i), strings.ToLower(name)
		switch {
		case !isHeaderName(name):
			in.report(shown, "expected the name of a header, got %q", name)
		case slices.Contains(ownHeaders, lower) || strings.HasPrefix(lower, "x-remora-"):
			in.report(shown, "the sidecar has its own rule for %s: see docs/headers.md", name)
		case slices.ContainsFunc(f.Strip[:i], func(s string) bool { return strings.EqualFold(s, name) }):
			in.report(shown, "%q is listed twice", name)
		}
	}
}

// ownHeaders are those that the sidecar sets or needs, in lower case.
var ownHeaders = []string{
	"host", "via", "cdn-loop", "x-forwarded-for", "x-forwarded-proto", "x-request-id", "max-forwards", "connection", "content-length",
	"transfer-encoding", "upgrade", "expect", "te", "trailer",
}

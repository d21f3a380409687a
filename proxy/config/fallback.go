package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Failures for which a fallback may answer.
const (
	FallbackBreaker    = "breaker"     // the breaker is open
	FallbackDeadline   = "deadline"    // no response in time
	FallbackNoEndpoint = "no_endpoint" // no endpoint took the request
	FallbackOverload   = "overload"    // too much work waits
	FallbackReset      = "reset"       // the connection was lost after the request was sent
	Fallback5xx        = "5xx"         // a bad response, or an injected abort
)

// FallbackReasons are the failures that a fallback may name.
var FallbackReasons = [...]string{
	FallbackBreaker, FallbackDeadline, FallbackNoEndpoint, FallbackOverload, FallbackReset, Fallback5xx,
}

// Fallback answers requests of a route in place of their failure.
type Fallback struct {
	// [Failures](routing.md#fallbacks) that it answers for: `breaker`, `deadline`, `no_endpoint`, `overload`, `reset`, `5xx`.
	On []string `yaml:"on"`
	// Name of a service that the request is sent to instead, if it is idempotent or can't have reached an application.
	Service string `yaml:"service"`
	// How long `service` may take; no longer than what is left of the route's `timeout`, unless that has passed.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
	// The response, instead of a service.
	Respond Respond `yaml:"respond"`
}

func (f *Fallback) setDefaults() { f.On, f.Timeout = slices.Clone(FallbackReasons[:3]), time.Second }

// Enabled reports whether there is an answer.
func (f *Fallback) Enabled() bool { return f.Service != "" || f.Respond.Given() }

func (f *Fallback) given() bool {
	d := withDefaults[Fallback]()
	return f.Enabled() || !slices.Equal(f.On, d.On) || f.Timeout != d.Timeout
}

func (f *Fallback) sendsTo() string { return f.Service }

// check reports fallbacks without an answer, or with one that callers can't have.
func (f *Fallback) check(in scope, at path) {
	protocol := in.config.routeProtocol(&in.route.Match)
	if !f.Enabled() {
		in.refuseIf(f.given(), at, "expected respond or service, which says what the fallback is")
		return
	}
	in.refuseIf(len(f.On) == 0, at.key("on"), "empty: the fallback is for nothing")
	for i, reason := range f.On {
		shown := at.key("on").item(i)
		in.refuseIf(!slices.Contains(FallbackReasons[:], reason), shown, "expected one of %s, got %q%s",
			strings.Join(FallbackReasons[:], ", "), reason, didYouMean(reason, FallbackReasons[:]))
		in.refuseIf(slices.Contains(f.On[:i], reason), shown, "%q is listed twice", reason)
	}
	if f.Service == "" {
		in.refuseIf(protocol == ProtocolDubbo, at.key("respond"), "only Dubbo calls come here, and this is a response of HTTP; expected service")
		in.refuseIf(f.Timeout != withDefaults[Fallback]().Timeout, at.key("timeout"), "is for service: the response is at hand")
		f.Respond.check(in, at.key("respond"))
		for _, name := range slices.Sorted(maps.Keys(f.Respond.Headers)) {
			parts, _ := ParseValue(f.Respond.Headers[name])
			in.refuseIf(slices.ContainsFunc(parts, func(p Part) bool { return p.Placeholder != "" }),
				at.key("respond").key("headers").entry(name), "placeholders are not filled in here; expected {{ for a brace")
		}
		return
	}
	in.refuseIf(f.Respond.Given(), at.key("respond"), "contradicts service")
	in.refuseIf(slices.Contains(in.route.services(), f.Service), at.key("service"), "the route leads to %s itself", f.Service)
	checkCopies(in, at.key("service"), f.Service, protocol)
}

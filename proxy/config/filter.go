package config

import (
	"slices"
	"time"
)

// Fault injects faults into the requests of a route, to try out what callers do then. The shares
// are drawn for each request, one by one.
type Fault struct {
	// Time that a request waits before it is sent, below `timeout`, which includes it. 0 means none.
	Delay time.Duration `yaml:"delay"`
	// Share of the requests that wait.
	DelayShare float64 `yaml:"delay_share" in:"[0,1]"`
	// Status of requests that are not sent, 400 to 599: `fault-injected`. 0 means none.
	Abort int `yaml:"abort" max:"599"`
	// Share of the requests that are not sent.
	AbortShare float64 `yaml:"abort_share" in:"[0,1]"`
}

// Enabled reports whether f injects anything.
func (f *Fault) Enabled() bool {
	return f.Delay > 0 && f.DelayShare > 0 || f.Abort > 0 && f.AbortShare > 0
}

// Mirror sends copies of a route's HTTP requests to a second service. Nobody waits for them, and
// their responses are discarded.
type Mirror struct {
	// Name of the service that gets the copies. Empty means none.
	Service string `yaml:"service"`
	// Share of the requests that are copied.
	Share float64 `yaml:"share" in:"[0,1]"`
}

// Enabled reports whether anything is copied.
func (m *Mirror) Enabled() bool { return m.Service != "" && m.Share > 0 }

// defaultMirror returns a mirror that is off. A file that sets one copies all requests.
func defaultMirror() Mirror { return Mirror{Share: 1} }

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

// Given reports whether there is an answer.
func (f *Fallback) Given() bool { return f.Service != "" || f.Respond.Given() }

// isDefault reports whether a file sets no key, or only to what it is without.
func (f *Fallback) isDefault() bool {
	d := defaultFallback()
	return !f.Given() && slices.Equal(f.On, d.On) && f.Timeout == d.Timeout
}

// defaultFallback returns a fallback without an answer.
func defaultFallback() Fallback {
	return Fallback{On: slices.Clone(FallbackReasons[:3]), Timeout: time.Second}
}

// defaultFault returns faults that are off. A file that sets one injects it into all requests.
func defaultFault() Fault { return Fault{DelayShare: 1, AbortShare: 1} }

// policies returns the policy of the route, or those of its shares.
func (r *Route) policies() []*Policy {
	if len(r.Split) == 0 {
		return []*Policy{&r.Policy}
	}
	all := make([]*Policy, len(r.Split))
	for i := range r.Split {
		all[i] = &r.Split[i].Policy
	}
	return all
}

// Cache keeps responses of a route in memory (RFC 9111). A route that sets it has one.
type Cache struct {
	// Lifetime of responses that name none. 0 means that they are not stored.
	TTL time.Duration `yaml:"ttl"`
	// How long after its lifetime a response is used while it is refreshed, or if the service fails. Its own headers override it.
	Stale time.Duration `yaml:"stale"`
	// Up to 8 headers of requests that are part of the key: requests with other values get other responses.
	Key []string `yaml:"key"`
	// Up to 8 headers of requests that do not say who asks, although their names sound so (caching.md). Requests that differ in them share responses.
	Ignore []string `yaml:"ignore"`
	// Memory of the cache, at least 1MiB, divided among the loops and the shares of the route. 0 means no cache.
	Bytes int64 `yaml:"bytes" unit:"size" max:"1024GiB"`
}

// Enabled reports whether there is a cache.
func (c *Cache) Enabled() bool { return c.Bytes > 0 }

// defaultCache returns the cache of a route that sets one.
func defaultCache() Cache { return Cache{TTL: time.Second, Stale: 10 * time.Second, Bytes: 64 << 20} }

// Caches reports whether a route to a service has a cache.
func (c *Config) Caches(service string) bool {
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Cache.Enabled() && slices.Contains(r.services(), service) {
			return true
		}
	}
	return false
}

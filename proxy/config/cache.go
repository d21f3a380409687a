package config

import (
	"slices"
	"strings"
	"time"
)

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

// setGiven sets the defaults of a route that has the block.
func (c *Cache) setGiven() { *c = Cache{TTL: time.Second, Stale: 10 * time.Second, Bytes: 64 << 20} }

// Enabled reports whether there is a cache.
func (c *Cache) Enabled() bool { return c.Bytes > 0 }

func (c *Cache) given() bool { return c.Enabled() }

func (c *Cache) sendsTo() string { return "" }

// Caches reports whether a route to a service has a cache.
func (c *Config) Caches(service string) bool {
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Cache.Enabled() && slices.Contains(r.services(), service) {
			return true
		}
	}
	return false
}

// check reports keys that name no header, and a cache whose responses nobody could share.
func (c *Cache) check(in scope, at path) {
	checkSharing(in, at, c.Enabled())
	in.refuseIf(c.Enabled() && c.Bytes < leastCache, at.key("bytes"), "expected at least %s, or 0 for no cache", formatSize(leastCache))
	checkCacheHeaders(in, at.key("key"), c.Key, nil)
	checkCacheHeaders(in, at.key("ignore"), c.Ignore, c.Key)
}

// checkSharing reports a route whose requests can't share responses, if a setting of it says that they do.
func checkSharing(in scope, at path, shares bool) {
	if !shares {
		return
	}
	in.refuseIf(in.config.routeProtocol(&in.route.Match) == ProtocolDubbo, at, "is for requests of HTTP, and only Dubbo calls come here")
	for _, name := range in.route.services() {
		if s := in.config.Services[name]; s != nil && s.Protocol == ProtocolGRPC {
			in.report(at, "service %s speaks grpc: calls of gRPC are neither cached nor collapsed", name)
		}
	}
}

// checkCacheHeaders reports a list of headers that is too long, texts that can't name a header, and names that are
// listed twice, or in other as well.
func checkCacheHeaders(in scope, at path, names, other []string) {
	in.refuseIf(len(names) > maxCacheHeaders, at, "expected at most %d headers, got %d", maxCacheHeaders, len(names))
	for i, name := range names {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		in.refuseIf(!isHeaderName(name), at.item(i), "expected the name of a header, got %q", name)
		in.refuseIf(slices.ContainsFunc(names[:i], same), at.item(i), "%q is listed twice", name)
		in.refuseIf(slices.ContainsFunc(other, same), at.item(i), "%q is part of the key", name)
	}
}

// maxCacheHeaders bounds the headers of a cache's key, and those that are ignored, leastCache its bytes.
const (
	maxCacheHeaders = 8
	leastCache      = 1 << 20
)

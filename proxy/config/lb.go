package config

import (
	"strings"
	"time"
)

// LB is how an endpoint is picked.
type LB struct {
	// How an endpoint is picked.
	Policy string `yaml:"policy" list:"policies"`
	// Endpoints used at most. 0 means all.
	Subset int `yaml:"subset" max:"1000000000" reload:"new service"`
	// Time until a new endpoint has its whole weight. 0 means at once.
	SlowStart time.Duration `yaml:"slow_start"`
	// If a larger share is unhealthy or ejected, all endpoints are used. 0 or 1 means only if all are.
	Panic  float64 `yaml:"panic" in:"[0,1]"`
	Hash   Hash    `yaml:"hash"`
	Sticky Sticky  `yaml:"sticky"`
}

func (b *LB) setDefaults() { *b = LB{Policy: LBLeastPending, SlowStart: 10 * time.Second, Panic: 0.9} }

// Policies that a default or a rule mentions.
const (
	LBLeastPending   = "least_pending"
	LBConsistentHash = "consistent_hash" // by LB.Hash
)

// Hash is what `consistent_hash` makes the key of a request of.
type Hash struct {
	// Name of the header that is the key of a request. `consistent_hash` requires exactly one of `header`, `cookie`, `query`, `path` and `source`.
	Header string `yaml:"header"`
	// Name of the cookie that is the key.
	Cookie string `yaml:"cookie"`
	// Lifetime of the `cookie` that the sidecar sets if a request has none, at least 1s. 0 means that it sets none.
	TTL time.Duration `yaml:"ttl"`
	// Name of the parameter of the query that is the key. Its value is not decoded.
	Query string `yaml:"query"`
	// The key is the path without its query, of a Dubbo call the interface.
	Path bool `yaml:"path"`
	// The key is the address of the peer, of IPv6 the first 64 bits.
	Source bool `yaml:"source"`
	// An endpoint with this many times its share of the load is passed over. More than 1; 0 means no bound.
	Balance float64 `yaml:"balance" in:"[0,100]"`
}

func (h *Hash) setDefaults() { h.Balance = 1.25 }

// ofHTTP reports whether the keys are a part of requests that only HTTP has.
func (h *Hash) ofHTTP() bool { return h.Header != "" || h.Cookie != "" || h.Query != "" }

// check reports keys that no request has.
func (h *Hash) check(in scope, at path) {
	kinds, policy := 0, in.service.LB.Policy
	for _, given := range []bool{h.Header != "", h.Cookie != "", h.Query != "", h.Path, h.Source} {
		if given {
			kinds++
		}
	}
	needed := policy == LBConsistentHash
	const one = "expected exactly one of header, cookie, query, path and source"
	in.refuseIf(needed && kinds == 0, at, "missing; "+one)
	in.refuseIf(kinds > 1, at, one+", got %d", kinds)
	in.refuseIf(kinds > 0 && !needed, at, "not used by lb.policy: %s; expected %s", policy, LBConsistentHash)
	in.refuseIf(h.TTL > 0 && h.Cookie == "", at.key("ttl"), "needs cookie, the name of the cookie that is set")
	checkCookieTTL(in, at.key("ttl"), h.TTL)
	in.refuseIf(h.Balance > 0 && h.Balance <= 1, at.key("balance"),
		"expected more than 1, got %v: not all endpoints can have less than the mean; 0 means no bound", h.Balance)
	checkCookieName(in, at.key("cookie"), h.Cookie)
	switch lower := strings.ToLower(h.Header); {
	case h.Header == "":
	case !isHeaderName(h.Header):
		in.report(at.key("header"), "expected the name of a header, got %q", h.Header)
	case lower == "host":
		in.report(at.key("header"), "the host is no key; routes by match.host may lead to services of their own")
	case strings.HasPrefix(lower, "x-remora-"):
		in.report(at.key("header"), "the sidecar removes its own headers before it makes keys")
	}
}

// Sticky pins the requests of a client to one endpoint. The zero Cookie is off.
type Sticky struct {
	// Name of a cookie that keeps a client at its endpoint. The sidecar sets it, and keeps it from the application. Empty means none.
	Cookie string `yaml:"cookie"`
	// Lifetime of the cookie, at least 1s. 0 means until the browser closes.
	TTL time.Duration `yaml:"ttl"`
	// Text of at least 16 bytes that makes the values of the cookie unguessable. Sidecars with the same text make the same values.
	Secret string `yaml:"secret" secret:"true"`
}

// minSecret is the shortest secret of a sticky cookie, in bytes.
const minSecret = 16

// check reports a cookie that clients could not send back, or forge.
func (s *Sticky) check(in scope, at path) {
	if s.Cookie == "" {
		in.refuseIf(*s != Sticky{}, at.key("cookie"), "missing; expected the name of a cookie")
		return
	}
	checkCookieName(in, at.key("cookie"), s.Cookie)
	checkCookieTTL(in, at.key("ttl"), s.TTL)
	in.refuseIf(len(s.Secret) < minSecret, at.key("secret"), "expected at least %d bytes, the same in all sidecars", minSecret)
	in.refuseIf(in.service.LB.Hash.Cookie != "", at, "lb.hash.cookie makes sessions, too; expected one of both")
}

func checkCookieName(in scope, at path, name string) {
	in.refuseIf(name != "" && !isHeaderName(name), at, "expected the name of a cookie, got %q", name)
}

func checkCookieTTL(in scope, at path, ttl time.Duration) {
	in.refuseIf(ttl > 0 && ttl < time.Second, at, "expected at least 1s, got %s", ttl)
}

package forwarded

import (
	"bytes"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Policy is what a listener believes. It does not change. A nil Policy believes nobody.
type Policy struct {
	trust            config.Trust
	outside, trusted *filter // of clients that are not trusted, and of those that are
}

// New returns the policy of a listener. loopback says that only this host can reach it.
func New(c *config.Forwarded, loopback bool) *Policy {
	t := c.Trusts(loopback)
	if t.All && c.Underscores == config.UnderscoresKeep { // the client is the application itself
		return &Policy{trust: t}
	}
	return &Policy{
		trust: t, outside: newFilter(c.Underscores, c.Strip), trusted: newFilter(c.Underscores, nil),
	}
}

// Client is what a Policy says about one connection. Trusted clients may say who called them.
// Each connection has one, so it is small.
type Client struct {
	policy  *Policy // nil removes nothing
	Trusted bool
}

// Client returns what p says about a client at "ip:port", or on a Unix socket.
func (p *Policy) Client(remote string) Client {
	if p == nil {
		return Client{}
	}
	c := Client{policy: p, Trusted: p.trust.All || p.trust.Hops > 0}
	if len(p.trust.From) > 0 {
		at := loop.PeerAddr(remote)
		c.Trusted = at.IsValid() && p.trust.Contains(at)
	}
	return c
}

// Judge returns what happens to a header whose name has no other rule.
func (c *Client) Judge(name []byte) Verdict {
	if c.policy == nil {
		return Keep
	}
	f := c.policy.outside
	if c.Trusted {
		f = c.policy.trusted
	}
	if f == nil {
		return Keep
	}
	return f.judge(name)
}

// Believed returns the end of a list of addresses, as in X-Forwarded-For, that trusted proxies
// have written. Further left anybody may have written. The first address of the result is the client of
// the outermost trusted proxy. The client must be Trusted.
func (c *Client) Believed(list []byte) []byte {
	trust := &c.policy.trust
	rest := list
	for hops := 1; ; hops++ {
		comma := bytes.LastIndexByte(rest, ',')
		if comma < 0 {
			return list
		}
		entry := bytes.Trim(rest[comma+1:], " \t")
		if hops == trust.Hops || len(trust.From) > 0 && !isProxy(trust, entry) {
			return bytes.TrimLeft(list[comma+1:], " \t")
		}
		rest = rest[:comma]
	}
}

// isProxy reports whether an entry of a list is the address of a proxy that t trusts.
func isProxy(t *config.Trust, entry []byte) bool {
	addr := addrOf(entry)
	return addr.IsValid() && t.Contains(addr)
}

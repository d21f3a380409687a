package link

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// upstream is the link upstream of one endpoint on one loop: one multiplexed
// link, dialled on first use and again when it is lost.
type upstream struct {
	*connector
	service  *exchange.Service
	endpoint *exchange.Endpoint
	cur      *client // takes new attempts; nil before the first, and after a loss
	gone     bool    // the endpoint left the service
}

// connector makes the links of one loop.
type connector struct {
	shard *shard.Shard
	pool  *exchange.Pool
}

func NewConnector(w *shard.Shard, p *exchange.Pool) exchange.Connector { return &connector{w, p} }

func (l *connector) Upstream(s *exchange.Service, target *exchange.Endpoint) exchange.Upstream {
	return &upstream{connector: l, service: s, endpoint: target}
}

func (u *upstream) Send(a *exchange.Attempt) {
	if u.cur == nil {
		u.cur = dialLink(u)
	}
	u.cur.send(a)
}

func (u *upstream) Retire() {
	u.gone = true
	if c := u.cur; c != nil {
		u.cur = nil
		c.drain()
	}
}

func (u *upstream) Connections() int {
	if u.cur == nil {
		return 0
	}
	return 1
}

func (u *upstream) Largest() (held, each int, h exchange.Holder) {
	c := u.cur
	if c == nil {
		return 0, 0, nil
	}
	held = c.Held + c.Outbound.Counted
	return held, held / max(1, c.InFlight()), c
}

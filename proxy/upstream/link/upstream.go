package link

import (
	"slices"

	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// upstream reaches one endpoint over one link, dialled on first use and again after a loss.
type upstream struct {
	service  *service.Service
	endpoint *service.Endpoint
	cur      *client   // takes new attempts; nil before the first one and after a loss
	all      []*client // cur, and those that drain
	gone     bool      // the endpoint has left the service
}

// NewConnector returns the Connector of links on a loop.
func NewConnector() service.Connector {
	return race.ConnectBy(func(s *service.Service, e *service.Endpoint) race.Upstream {
		return &upstream{service: s, endpoint: e}
	})
}

func (u *upstream) Send(a *race.Attempt) {
	if u.cur == nil {
		u.cur = dialLink(u)
	}
	u.cur.calls.send(a)
}

func (u *upstream) Retire() {
	u.gone = true
	if c := u.cur; c != nil {
		u.cur = nil
		c.drain()
	}
}

func (u *upstream) Connections() int { return len(u.all) }

func (u *upstream) Largest() (held, each int, h shard.Holder) {
	for _, c := range u.all {
		if n := c.Account.Messages() + c.Outbound.Counted(); n >= held {
			held, each, h = n, n/max(1, c.InFlight()), c
		}
	}
	return held, each, h
}

// remove takes out c, which closes.
func (u *upstream) remove(c *client) {
	c.detach()
	u.all = slices.DeleteFunc(u.all, func(o *client) bool { return o == c })
}

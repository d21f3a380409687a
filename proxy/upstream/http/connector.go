package http

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// connector makes the HTTP pools of one loop.
type connector struct {
	shard     *shard.Shard
	responses *exchange.Pool
}

// NewConnector returns the Connector of HTTP connections on a loop.
func NewConnector(s *shard.Shard, p *exchange.Pool) exchange.Connector { return connector{s, p} }

func (c connector) Upstream(s *exchange.Service, e *exchange.Endpoint) exchange.Upstream {
	p := &pool{shard: c.shard, responses: c.responses, service: s, endpoint: e}
	p.sweeper.Fire = p.sweep
	p.retryDial.Fire = p.dialAgain
	return p
}

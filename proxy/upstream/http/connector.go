package http

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// connector makes the HTTP pools of one loop.
type connector struct {
	w    *shard.Shard
	pool *exchange.Pool
}

func NewConnector(w *shard.Shard, p *exchange.Pool) exchange.Connector { return connector{w, p} }

func (h connector) Upstream(s *exchange.Service, target *exchange.Endpoint) exchange.Upstream {
	p := &pool{shard: h.w, responses: h.pool, service: s, endpoint: target}
	p.sweeper.Fire = p.sweep
	p.again.Fire = p.dialAgain
	return p
}

package dubbo

import (
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// upstream is the Dubbo upstream of one endpoint on one loop: one
// multiplexed connection, dialled on first use and again when it is lost.
type upstream struct {
	*connector
	service       *exchange.Service
	endpoint      *exchange.Endpoint
	serialization byte    // of calls that came as HTTP, and of heartbeats
	cur           *client // takes new attempts; nil before the first, and after a loss
	leaving       bool    // the provider said that it goes down, and not yet that it is back
	gone          bool    // the endpoint left the service
}

// connector makes the Dubbo connections of one loop.
type connector struct {
	shard *shard.Shard
	pool  *exchange.Pool
	call  dubbo.Call // scratch memory: the call that is being converted
}

func NewConnector(w *shard.Shard, p *exchange.Pool) exchange.Connector {
	return &connector{shard: w, pool: p}
}

func (d *connector) Upstream(s *exchange.Service, target *exchange.Endpoint) exchange.Upstream {
	u := &upstream{connector: d, service: s, endpoint: target, serialization: dubbo.Hessian2}
	if s.Config.Serialization == config.SerializationFastjson {
		u.serialization = dubbo.Fastjson
	}
	return u
}

func (u *upstream) Send(a *exchange.Attempt) {
	if u.cur == nil {
		u.cur = dialDubbo(u)
	}
	u.cur.send(a)
}

func (u *upstream) Retire() {
	u.gone = true
	if u.cur != nil {
		u.cur.finish()
	}
}

func (u *upstream) Connections() int {
	if u.cur == nil {
		return 0
	}
	return 1
}

func (u *upstream) Largest() (held, each int, h exchange.Holder) { return 0, 0, nil }

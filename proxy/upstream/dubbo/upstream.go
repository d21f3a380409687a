package dubbo

import (
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// upstream reaches one endpoint over one connection, dialled on first use and after a loss.
type upstream struct {
	service       *service.Service
	endpoint      *service.Endpoint
	serialization byte        // of converted calls and of heartbeats
	scratch       *dubbo.Call // of the loop, for the conversion of a request
	cur           *client     // takes new attempts; nil before the first one and after a loss
	open          int         // connections: cur, and those that the provider leaves
	leaving       bool        // the provider has sent a read-only event, and responded to no heartbeat since
	gone          bool        // the endpoint has left the service

	invocation dubbo.Invocation // memory for parsing a call that is passed through
}

// NewConnector returns the Connector of Dubbo connections on a loop.
func NewConnector() service.Connector {
	scratch := new(dubbo.Call)
	return race.ConnectBy(func(s *service.Service, e *service.Endpoint) race.Upstream {
		u := &upstream{service: s, endpoint: e, serialization: dubbo.Hessian2, scratch: scratch}
		if s.Config.Serialization == config.SerializationFastjson {
			u.serialization = dubbo.Fastjson
		}
		return u
	})
}

func (u *upstream) Send(a *race.Attempt) {
	if u.cur == nil {
		u.cur = dialDubbo(u)
	}
	u.cur.send(a)
}

func (u *upstream) Retire() {
	u.gone = true
	if u.cur != nil {
		u.cur.closeIfDone()
	}
}

func (u *upstream) Connections() int { return u.open }

func (u *upstream) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }

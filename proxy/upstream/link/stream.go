package link

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/race"
)

// fetch gives a response the source of its body: the stream that its token names.
func (c *client) fetch(a *race.Attempt, res *race.Response) {
	head := res.StreamHead()
	src := &race.StreamSource{
		Addr: c.up.endpoint.LB.Addr, Service: c.up.service.Config.Name, Timeout: a.Outgoing().Timeout(),
		Token: link.Token(res.StreamToken), Buffer: c.Shard.Buffers.Get(0),
		Stream: race.AdoptStream(c.up.service, c.up.endpoint.LB), Interactive: protocol.Interactive(res.Headers),
	}
	src.Body.Reset(&head, c.Shard.UnlimitedBody)
	res.StreamToken, res.Source = nil, src
}

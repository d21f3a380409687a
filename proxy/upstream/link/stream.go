package link

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/race"
)

// fetch gives a response the source of its body: the stream that its token names.
func (cs *calls) fetch(a *race.Attempt, res *race.Response) {
	head := res.StreamHead()
	src := &race.StreamSource{
		Addr: cs.up.endpoint.LB.Addr, Service: cs.up.service.Config.Name, Timeout: a.Outgoing().Timeout(),
		Token: link.Token(res.StreamToken), Buffer: cs.Shard.Buffers.Get(0),
		Stream: a.NewStream(), Interactive: protocol.Interactive(res.Headers),
	}
	src.Body.Reset(&head, cs.Shard.UnlimitedBody)
	res.StreamToken, res.Source = nil, src
}

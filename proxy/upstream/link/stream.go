package link

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
)

// fetch gives the answer to a the stream that its token stands for.
func (c *client) fetch(a *exchange.Attempt, ans *exchange.Response) {
	head := http1.Head{Framing: http1.Chunked}
	if ans.DeclaredLength >= 0 {
		head.Framing, head.Length = http1.FixedLength, ans.DeclaredLength
	}
	src := &exchange.StreamSource{
		Addr: c.up.endpoint.LB.Addr, Service: c.up.service.Config.Name, Timeout: a.Timeout(),
		Token: link.Token(ans.StreamToken), Buffer: c.Shard.Buffers.Get(0),
		Lease: c.up.service.AdoptStream(c.up.endpoint.LB),
	}
	src.Body.Reset(&head, c.Shard.UnlimitedBody)
	ans.StreamToken, ans.Source = nil, src
}

package proxy

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// fetch gives the answer to a the stream that its token stands for.
func (c *linkClient) fetch(a *attempt, ans *answer) {
	head := http1.Head{Framing: http1.Chunked}
	if ans.DeclaredLength >= 0 {
		head.Framing, head.Length = http1.FixedLength, ans.DeclaredLength
	}
	src := &StreamSource{
		Addr: c.up.target.lb.Addr, Service: c.up.svc.cfg.Name, Timeout: a.timeout(),
		Token: link.Token(ans.StreamToken), Buffer: c.shard.buffers.Get(0),
		Lease: c.up.svc.adoptStream(c.up.target.lb),
	}
	src.Body.Reset(&head, c.shard.noLimit)
	ans.StreamToken, ans.stream = nil, src
}

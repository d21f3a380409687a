package race

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

// interims are the interim responses that the owner of a race has got.
type interims struct {
	from  *Attempt // the latest came from there
	count int
	size  int // of their headers, in bytes
}

// Interim passes an interim response of the endpoint on to the owner (RFC 9110 section 15.2). The upstream
// keeps the memory of res. The response is no response to timers, filters and records.
//
// While one attempt that has sent some is in flight, those of others are dropped: a caller would get them
// twice. Those beyond http1.MaxInterim, and beyond the size that one head may have, are dropped too.
func (a *Attempt) Interim(res *protocol.Response) {
	r := a.race
	if a.state != attemptSent || r.state != raceOn {
		return
	}
	i := &r.interims
	if i.from != nil && i.from != a && i.from.state == attemptSent {
		return
	}
	res.Headers, _, _ = protocol.FromEndpoint(res.Headers)
	size := 0
	for j := range res.Headers {
		size += len(res.Headers[j].Name) + len(res.Headers[j].Value)
	}
	if i.count == http1.MaxInterim || i.size+size > r.shard.MessageLimits.Header {
		return
	}
	i.from, i.count, i.size = a, i.count+1, i.size+size
	r.owner.Interim(res)
}

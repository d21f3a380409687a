// Package mirror is the filter that sends copies of requests to a second service. Nobody waits for
// them.
package mirror

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// What the copies of one route may hold on one loop. A request for which there is no room is not
// copied.
const (
	maxInFlight = 64
	maxBytes    = 8 << 20
)

// filter copies the requests of one route on one loop.
type filter struct {
	shard  *shard.Shard
	copies *exchange.Copies
	share  float64
	to     *exchange.Route // of the copies
	counts *stats.FilterStats

	inFlight, bytes int // of copies
}

var _ exchange.Receiver = (*filter)(nil)

// New returns the filter of a route, or nil if that has no mirror.
func New(at *exchange.FilterPlace) exchange.Filter {
	c := at.Route.Mirror()
	if !c.Enabled() {
		return nil
	}
	service := at.Services[c.Service]
	f := &filter{
		shard: at.Shard, copies: &at.Pool.Copies, share: c.Share, to: exchange.NewCopyRoute(service), counts: &service.Stats.FilterStats,
	}
	f.counts.Mirrors = true
	return f
}

func (f *filter) Request(ex *exchange.Exchange) exchange.Next {
	if ex.Request.Codec == protocol.CodecHTTP && !ex.Request.Login && f.shard.Draw(f.share) {
		f.copy(ex)
	}
	return exchange.Continue
}

// End implements exchange.Filter. A copy has an end of its own.
func (f *filter) End(*exchange.Exchange) {}

// Retire implements exchange.Filter.
func (*filter) Retire() {}

var mark = protocol.Header{Name: protocol.NameMirror, Value: []byte("1")}

// copy sends a copy of a request, unless there is no room for it or memory gets short.
func (f *filter) copy(ex *exchange.Exchange) {
	size := ex.Request.Size()
	if f.inFlight == maxInFlight || f.bytes+size > maxBytes || f.shard.Process.RefusesBatch(0) {
		f.counts.MirrorDropped++
		return
	}
	c := f.copies.New(ex)
	c.Request.Headers = append(c.Request.Headers, mark)
	c.StreamID = uint64(size) // the number is the filter's own: what release gives back
	f.inFlight++
	f.bytes += size
	f.copies.Send(c, f.to, f, 0)
}

// release gives back the room of a copy.
func (f *filter) release(c *exchange.Exchange) {
	f.inFlight--
	f.bytes -= int(c.StreamID)
}

// Respond implements exchange.Receiver.
func (f *filter) Respond(c *exchange.Exchange, res *race.Response) {
	if f.release(c); res.Failed() {
		f.counts.MirrorFailed++
	} else {
		f.counts.MirrorAnswered++
	}
	res.Release()
}

// Fail implements exchange.Receiver.
func (f *filter) Fail(c *exchange.Exchange, _ *fault.Failure) {
	f.release(c)
	f.counts.MirrorFailed++
}

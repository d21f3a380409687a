// Package collapse is the filter that sends one of several same requests, and gives its response to
// all of them.
//
//	collapse.go  filter, which finds the requests that are in flight
//	flight.go    flight, the requests that are the same
package collapse

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// maxWaiting bounds the requests of a route on one loop that wait. Others are sent. A test lowers it.
var maxWaiting = 65_536

const (
	// In one turn of the loop at most batch requests get the response, and about batchBytes are sent: the
	// connection of a slow client copies what it is sent.
	batch      = 256
	batchBytes = 1 << 20

	maxKept = 1024 // bytes of a key, and members, of a flight on its list

	// aloneFor is how long requests are sent at once after a response that they could not share.
	aloneFor   = time.Second
	aloneSlots = 256
)

// filter collapses the requests of one route on one loop. A request leads if it is sent; others wait
// for its response.
type filter struct {
	shard  *shard.Shard
	counts *stats.FilterStats
	ids    *caching.Identity
	seed   uint64

	flights     map[uint64]*flight // by the hash of the key
	members     map[*exchange.Exchange]*member
	waiting     int
	alone       [aloneSlots]alone // by hash
	key         []byte            // scratch
	freeFlights shard.FreeList[*flight]
	freeMembers shard.FreeList[*member]
}

// alone is a key whose responses were not shared lately.
type alone struct {
	hash  uint64
	until time.Duration
}

var _ exchange.OutcomeFilter = (*filter)(nil)

// New returns the filter of a route, or nil if that does not collapse requests.
func New(at *exchange.FilterPlace) exchange.Filter {
	if !at.Route.Collapse {
		return nil
	}
	f := &filter{
		shard: at.Shard, counts: &at.Service.Stats.FilterStats, ids: caching.NewIdentity(at.Route.Cache.Key, at.Route.Cache.Ignore), seed: at.Shard.IDs.Uint64(),
		flights: make(map[uint64]*flight), members: make(map[*exchange.Exchange]*member),
	}
	f.counts.Collapses = true
	return f
}

// Request implements exchange.Filter.
func (f *filter) Request(ex *exchange.Exchange) exchange.Next {
	req := &ex.Request
	if req.Codec != protocol.CodecHTTP || !req.Idempotent || len(req.Trailers) > 0 || protocol.IsGRPC(req.Headers) {
		return exchange.Continue
	}
	f.key = f.appendKey(f.key[:0], ex)
	hash := caching.Hash(f.seed, f.key)
	if len(req.Body) > 0 {
		hash = caching.Hash(hash, req.Body)
	}
	now := f.shard.Loop.Now()
	if a := &f.alone[hash%aloneSlots]; a.hash == hash && now < a.until {
		f.counts.CollapseAlone++
		return exchange.Continue
	}
	fl := f.flights[hash]
	switch {
	case fl == nil:
		fl = f.open(hash, now)
		fl.lead(f.join(ex, fl))
		return exchange.Continue
	case f.waiting == maxWaiting || !bytes.Equal(fl.key, f.key) || !bytes.Equal(fl.sample().Request.Body, req.Body):
		f.counts.CollapseAlone++
		return exchange.Continue
	}
	fl.wait(f.join(ex, fl), now, ex.Route.HedgeRoute.Delays.Of(now, 0))
	return exchange.Wait
}

// appendKey appends all that makes two requests the same, but for their bodies.
func (f *filter) appendKey(dst []byte, ex *exchange.Exchange) []byte {
	dst = f.ids.Append(dst, &ex.Request)
	if names := ex.PeerNames(); names != nil {
		for kind, list := range [][]string{names.DNS, names.URIs} {
			for _, name := range list {
				dst = append(append(dst, '\n', 'A'+byte(kind)), name...) // headers have small letters
			}
		}
	}
	return dst
}

// join makes ex a member of a flight.
func (f *filter) join(ex *exchange.Exchange, fl *flight) *member {
	m, ok := f.freeMembers.Take()
	if !ok {
		m = new(member)
	}
	*m = member{ex: ex, flight: fl}
	f.members[ex] = m
	return m
}

// leave undoes join, and keeps m for another request.
func (f *filter) leave(m *member) {
	delete(f.members, m.ex)
	m.flight.remove(m)
	*m = member{}
	f.freeMembers.Put(m)
}

// End implements exchange.Filter. If nobody leads any more, one that waits does.
func (f *filter) End(ex *exchange.Exchange) {
	if m := f.members[ex]; m != nil {
		fl := m.flight
		f.leave(m)
		fl.settle()
	}
}

// Retire implements exchange.Filter.
func (*filter) Retire() {}

// Response implements exchange.OutcomeFilter. The response to a leader is for all.
func (f *filter) Response(ex *exchange.Exchange, res *race.Response) *race.Response {
	m := f.members[ex]
	if m == nil || !m.leads || m.flight.state != flying || len(m.flight.waiting) == 0 {
		return res
	}
	fl := m.flight
	fl.land()
	if names, ok := shared(res, fl.names[:0]); ok {
		fl.names = names
		fl.variant = caching.AppendVariant(fl.variant[:0], names, ex.Request.Headers)
		fl.res = res.Alias()
	} else {
		f.alone[fl.hash%aloneSlots] = alone{fl.hash, f.shard.Loop.Now() + aloneFor}
	}
	return res
}

// shared reports whether other clients may have res. It appends the names of the headers by which it
// varies to names.
func shared(res *race.Response, names []byte) ([]byte, bool) {
	if res.Source != nil || len(res.Trailers) > 0 {
		return names, false
	}
	fields := caching.ReadFields(res.Headers)
	if !fields.ForOthers(res.Status) {
		return names, false
	}
	if fields.Varies {
		var any bool
		names, any = caching.AppendNames(names, res.Headers)
		return names, !any
	}
	return names, true
}

// Failure implements exchange.OutcomeFilter. After the failure of a leader one that waits leads. If
// that fails, too, all have failed, unless it was only the leader's own time that was up.
func (f *filter) Failure(ex *exchange.Exchange, why *fault.Failure) exchange.Next {
	m := f.members[ex]
	if m == nil || !m.leads || m.flight.state != flying || why == fault.Deadline {
		return exchange.Continue
	}
	fl := m.flight
	if fl.failed++; fl.failed > 1 && len(fl.waiting) > 0 {
		fl.land()
		fl.failure = why
	}
	return exchange.Continue
}

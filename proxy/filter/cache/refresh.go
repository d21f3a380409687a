package cache

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
)

// maxRefreshes bounds the refreshes of one route on one loop that are in flight. A response that can't
// be refreshed is used as it is.
const maxRefreshes = 64

// retryAfter is when a refresh may follow one that has failed.
const retryAfter = time.Second

// refresher asks the service for responses on behalf of the cache. Nobody waits for them.
type refresher struct {
	*filter
	to       *exchange.Route
	inFlight int
}

var _ exchange.Receiver = (*refresher)(nil)

func (r *refresher) init(f *filter, service *service.Service) {
	*r = refresher{filter: f, to: exchange.NewCopyRoute(service)}
}

var methodGet = []byte("GET")

// prepare returns a request that refreshes an entry, or nil: a copy of the request in hand, for which
// the entry was found. Copies.Send must follow.
func (r *refresher) prepare(ex *exchange.Exchange, e *store.Entry, now time.Duration) *exchange.Exchange {
	f := r.filter
	if r.inFlight == maxRefreshes || f.retired || f.shard.Process.RefusesBatch(0) {
		return nil
	}
	e.Refresh = now + r.to.Timeout
	f.value = f.store.Append(f.value[:0], e)
	c := f.pool.Copies.New(ex)
	c.Request.Method = methodGet
	c.Request.Headers = slices.DeleteFunc(c.Request.Headers, func(h protocol.Header) bool {
		return protocol.EqualFold(h.Name, "cache-control") || protocol.EqualFold(h.Name, "pragma")
	})
	setConditions(c, f.value[:e.Fields])
	l := f.note(c, now)
	l.ask, l.refreshes = caching.Ask{Credentials: f.in.Credentials, Claims: f.in.Claims}, e.Meta
	r.inFlight++
	r.counts.CacheRefreshed++
	return c
}

// Respond implements exchange.Receiver.
func (r *refresher) Respond(c *exchange.Exchange, res *race.Response) {
	f := r.filter
	l, now := f.open[c], f.loop.Now()
	switch {
	case res.Failed():
		r.putOff(c, l, now)
	case res.Status == 304:
		primary := len(l.key)
		if e := f.entry(l.hash, &l.key, c.Request.Headers); e != nil && same(&e.Meta, &l.refreshes) {
			l.key = l.key[:primary]
			f.value = f.store.Append(f.value[:0], e)
			merged := f.merge(&e.Meta, f.value, nil, res)
			if !f.keep(l, c.Request.Headers, merged, now) {
				r.putOff(c, l, now)
			}
			merged.Release()
		}
	case !f.keep(l, c.Request.Headers, res, now):
		r.putOff(c, l, now)
	}
	res.Release()
	r.end(c, l)
}

// Fail implements exchange.Receiver.
func (r *refresher) Fail(c *exchange.Exchange, _ *fault.Failure) {
	l := r.filter.open[c]
	r.putOff(c, l, r.filter.loop.Now())
	r.end(c, l)
}

// putOff lets a later hit refresh the entry.
func (r *refresher) putOff(c *exchange.Exchange, l *lookup, now time.Duration) {
	if e := r.entry(l.hash, &l.key, c.Request.Headers); e != nil {
		e.Refresh = now + retryAfter
	}
}

func (r *refresher) end(c *exchange.Exchange, l *lookup) {
	r.inFlight--
	r.forget(c, l)
}

package cache

import (
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Headers of responses. Cache-Status is that of RFC 9211.
var (
	nameAge    = []byte("Age")
	nameStatus = []byte("Cache-Status")

	statusOf = [...][]byte{
		stats.CacheHit:         []byte("remora; hit"),
		stats.CacheStale:       []byte("remora; hit; detail=stale"),
		stats.CacheMiss:        []byte("remora; fwd=miss"),
		stats.CacheRevalidated: []byte("remora; fwd=stale; fwd-status=304; stored"),
		stats.CacheBypass:      []byte("remora; fwd=bypass"),
		stats.CacheCollapsed:   []byte("remora; fwd=miss; collapsed"),
	}
	statusStored = []byte("remora; fwd=miss; stored")
)

// maxAgeLen is the length of the longest Age.
const maxAgeLen = 10

// marked adds Cache-Status to a response of the service.
func marked(ex *exchange.Exchange, res *exchange.Response, kept bool) *exchange.Response {
	value := statusOf[ex.Cached]
	if kept && ex.Cached == stats.CacheMiss {
		value = statusStored
	}
	if value != nil {
		res.Headers = append(res.Headers, protocol.Header{Name: nameStatus, Value: value})
	}
	return res
}

// serve answers the request in hand from the cache. refresh says that the entry must be refreshed.
func (f *filter) serve(ex *exchange.Exchange, e *store.Entry, how stats.Cached, refresh bool) exchange.Next {
	if how == stats.CacheHit {
		f.counts.CacheHits++
	} else {
		f.counts.CacheStale++
	}
	f.store.Use(e)
	ex.Cached = how
	res, now := f.response(e.Size()), f.loop.Now()
	res.HeadBuffer.B = f.store.Append(res.HeadBuffer.B, e)
	f.finish(ex, res, now-e.Born)
	if f.in.Conditional {
		unchanged(&f.in.Ask, res)
	}
	if refresh {
		f.refresher.start(ex, e, now)
	}
	ex.Answer(res)
	return exchange.Done
}

// stored returns a response with a value, for a request that it was held for.
func (f *filter) stored(ex *exchange.Exchange, value []byte, m *store.Meta, now time.Duration) *exchange.Response {
	res := f.response(len(value))
	res.HeadBuffer.B = append(res.HeadBuffer.B, value...)
	f.finish(ex, res, now-m.Born)
	return res
}

// response returns a response with room for a value and an age.
func (f *filter) response(size int) *exchange.Response {
	res := f.pool.Response()
	res.HeadBuffer = f.shard.Buffers.GetRoom(size + maxAgeLen)
	return res
}

// finish makes a response of the value in its buffer.
func (f *filter) finish(ex *exchange.Exchange, res *exchange.Response, age time.Duration) {
	n := len(res.HeadBuffer.B)
	read(res.HeadBuffer.B, &res.Response)
	b := strconv.AppendUint(res.HeadBuffer.B, uint64(max(0, age)/time.Second), 10)
	res.HeadBuffer.B = b
	res.Headers = append(res.Headers, protocol.Header{Name: nameAge, Value: b[n:]}, protocol.Header{Name: nameStatus, Value: statusOf[ex.Cached]})
	if isHead(&ex.Request) {
		res.DeclaredLength, res.Body = int64(len(res.Body)), nil
	}
	res.Hold()
}

// condition makes a response 304 if the client of a request has it already.
func (f *filter) condition(l *lookup, res *exchange.Response) *exchange.Response {
	if l.ask.Conditional {
		unchanged(&l.ask, res)
	}
	return res
}

// unchanged makes a response with status 200 one with 304, if the client has it already. Of the
// headers that describe the body it keeps those by which the client knows it (RFC 9110 section 15.4.5).
func unchanged(a *caching.Ask, res *exchange.Response) {
	if res.Status != 200 || res.Source != nil {
		return
	}
	tag := protocol.Find(res.Headers, "etag")
	if !a.NotModified(tag, protocol.Find(res.Headers, "last-modified")) {
		return
	}
	kept := res.Headers[:0]
	for _, h := range res.Headers {
		const content = "content-"
		describes := len(h.Name) > len(content) && protocol.EqualFold(h.Name[:len(content)], content) && !protocol.EqualFold(h.Name, "content-location")
		if !describes && (tag == nil || !protocol.EqualFold(h.Name, "last-modified")) {
			kept = append(kept, h)
		}
	}
	clear(res.Headers[len(kept):])
	res.Headers, res.Status, res.Reason, res.Body, res.DeclaredLength = kept, 304, nil, nil, -1
}

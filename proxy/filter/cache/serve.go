package cache

import (
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Cache-Status is that of RFC 9211.
var (
	nameStatus = []byte("Cache-Status")

	statusOf = [...][]byte{
		stats.CacheHit:         []byte("remora; hit"),
		stats.CacheStale:       []byte("remora; hit; detail=stale"),
		stats.CacheMiss:        []byte("remora; fwd=miss"),
		stats.CacheRevalidated: []byte("remora; fwd=stale; fwd-status=304"),
		stats.CacheBypass:      []byte("remora; fwd=bypass"),
		stats.CacheCollapsed:   []byte("remora; fwd=miss; collapsed"),
	}
	statusOfKept = [len(statusOf)][]byte{
		stats.CacheMiss:        []byte("remora; fwd=miss; stored"),
		stats.CacheRevalidated: []byte("remora; fwd=stale; fwd-status=304; stored"),
	}

	// Of responses from the cache, in front of those that are stored.
	hitFields   = []byte("Cache-Status: remora; hit\r\nAge: ")
	staleFields = []byte("Cache-Status: remora; hit; detail=stale\r\nAge: ")
)

// marked adds Cache-Status to a response of the service.
func marked(ex *exchange.Exchange, res *race.Response, kept bool) *race.Response {
	value := statusOf[ex.Cached]
	if kept {
		value = statusOfKept[ex.Cached]
	}
	if value != nil {
		res.Headers = append(res.Headers, protocol.Header{Name: nameStatus, Value: value})
	}
	return res
}

// serve answers the request in hand with the entry for it. refresh says that it must be refreshed.
func (f *filter) serve(ex *exchange.Exchange, how stats.Cached, refresh bool) {
	e, now, lines := f.in.entry, f.loop.Now(), staleFields
	if how == stats.CacheHit {
		lines = hitFields
		f.counts.CacheHits++
	} else {
		f.counts.CacheStale++
	}
	f.store.Use(e)
	ex.Cached = how
	var c *exchange.Exchange
	if refresh {
		c = f.refresher.prepare(ex, e, now)
	}
	f.value = appendAge(append(f.value[:0], lines...), now-e.Born)
	var res *race.Response
	if e.Size() <= maxCopied || isHead(&ex.Request) {
		own := len(f.value)
		f.value = f.store.Append(f.value, e)
		n := own + int(e.Fields)
		res = f.response(ex, &e.Meta, f.value[:n], f.value[n:], nil)
	} else {
		h := f.hold(e)
		res = f.sharing(ex, h)
		h.Release()
	}
	if f.in.Conditional {
		unchanged(&f.in.Ask, res)
	}
	ex.Answer(res)
	if cap(f.value) > maxScratch {
		f.value = nil
	}
	if c != nil { // the response goes first; other requests may have begun with it
		f.pool.Copies.Send(c, f.refresher.to, &f.refresher, 0)
	}
}

// stored returns a stale response that was held for a request.
func (f *filter) stored(ex *exchange.Exchange, h *held, now time.Duration) *race.Response {
	f.counts.CacheStale++
	ex.Cached = stats.CacheStale
	f.value = appendAge(append(f.value[:0], staleFields...), now-h.Born)
	return f.sharing(ex, h)
}

// sharing returns a response with the body of h. Its fields are those in f.value, and those of h.
func (f *filter) sharing(ex *exchange.Exchange, h *held) *race.Response {
	f.value = append(f.value, h.value[:h.Fields]...)
	return f.response(ex, &h.Meta, f.value, h.value[h.Fields:], &h.Memory)
}

// response returns a response with these lines and this body.
func (f *filter) response(ex *exchange.Exchange, m *store.Meta, fields, body []byte, memory *shard.Memory) *race.Response {
	res := f.pool.Response()
	if res.Borrow(int(m.Status), fields, body, memory, m.Flags&caching.FlagNeverIndexed != 0); isHead(&ex.Request) {
		res.DeclaredLength, res.Body = int64(len(body)), nil
	}
	return res
}

// appendAge appends the value of Age, and the end of its line.
func appendAge(dst []byte, age time.Duration) []byte {
	if seconds := uint64(max(0, age) / time.Second); seconds < 10 {
		dst = append(dst, '0'+byte(seconds))
	} else {
		dst = strconv.AppendUint(dst, seconds, 10)
	}
	return append(dst, '\r', '\n')
}

// condition makes a response 304 if the client of a request has it already.
func (f *filter) condition(l *lookup, res *race.Response) *race.Response {
	if l.ask.Conditional {
		unchanged(&l.ask, res)
	}
	return res
}

// unchanged makes a response with status 200 one with 304, if the client has it already. Of the
// headers that describe the body it keeps those by which the client knows it (RFC 9110 section 15.4.5).
func unchanged(a *caching.Ask, res *race.Response) {
	if res.Status != 200 || res.Source != nil {
		return
	}
	res.Own()
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

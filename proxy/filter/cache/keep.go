package cache

import (
	"bytes"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// keep stores the response to a request with these headers, and reports whether it did.
func (f *filter) keep(l *lookup, headers []protocol.Header, res *race.Response, now time.Duration) bool {
	fields, any := caching.ReadFields(res.Headers), false
	if f.names = f.names[:0]; fields.Varies {
		f.names, any = caching.AppendNames(f.names, res.Headers)
	}
	m, ok := f.policy.Judge(res.Status, &fields, &l.ask, f.reader.Shares(&l.ask, f.names, headers),
		caching.Received{Asked: l.asked, Now: now, Wall: f.shard.Process.Now()})
	ok = ok && !any && res.Source == nil && len(res.Trailers) == 0 && !f.retired
	if ok {
		f.value, ok = res.AppendFields(f.value[:0], isUnstored)
	}
	if !ok {
		f.refuse(l, headers, res)
		return false
	}
	f.stamps.Keep(l.target, now, m.Until)
	if slices.ContainsFunc(res.Headers, func(h protocol.Header) bool { return h.NeverIndexed }) {
		m.Flags |= caching.FlagNeverIndexed
	}
	m.Status, m.Fields = uint16(res.Status), uint32(len(f.value))
	if m.Fresh > now { // hits at the end of a lifetime refresh it, each key at another time
		m.Refresh -= time.Duration(f.shard.Rand.Uint64() % uint64((m.Fresh-now)/refreshPart+1))
	}
	hash := l.hash
	if len(f.names) > 0 {
		marker := store.Meta{Asked: l.asked, Until: m.Until, Flags: caching.FlagVaries}
		if e := f.store.Find(hash, l.key); e != nil && e.Flags&caching.FlagVaries != 0 {
			marker.Until = max(marker.Until, e.Until)
		}
		f.store.Put(now, hash, l.key, &marker, f.names)
		l.key = caching.AppendVariant(l.key, f.names, headers)
		hash = variantHash(hash, l.key)
	}
	ok = f.store.Put(now, hash, l.key, &m, f.value, res.Body)
	if !ok {
		f.counts.CacheRefused++
	}
	f.count()
	return ok
}

// refuse handles a response that may not be stored. It removes the one that was stored before, unless
// this one says nothing of that: it is for one client, or of a failure.
func (f *filter) refuse(l *lookup, headers []protocol.Header, res *race.Response) {
	if res.Failed() || res.Status == 304 { // to the client's own condition
		return
	}
	f.counts.CacheRefused++
	if l.ask.NoStore || l.ask.Credentials || l.ask.Claims || !caching.Replaces(res.Status) {
		return
	}
	if e := f.entry(l.hash, &l.key, headers); e != nil {
		f.store.Remove(e)
	}
}

// refreshPart is the last part of a lifetime in which a hit refreshes the response: a tenth.
const refreshPart = 10

// count tells the counters what the store holds, and has evicted.
func (f *filter) count() {
	if n := f.store.Bytes(); n != f.bytes {
		f.counts.CacheBytes += int64(n - f.bytes)
		f.bytes = n
	}
	f.counts.CacheEvicted += f.store.Evicted - f.evicted
	f.evicted = f.store.Evicted
}

// hold returns a copy of an entry, which the caller releases.
func (f *filter) hold(e *store.Entry) *held {
	hash := e.Hash()
	if h := f.shared[hash]; h != nil && same(&h.Meta, &e.Meta) {
		h.Use()
		return h
	}
	h, ok := f.freeHeld.Take()
	if !ok {
		h = new(held)
		h.onFree = func() { f.drop(h) }
	}
	h.Meta, h.hash = e.Meta, hash
	buf := f.shard.Buffers.GetRoom(e.Size())
	buf.B = f.store.Append(buf.B, e)
	h.value = buf.B
	h.Share(f.shard, h.onFree, buf)
	f.shared[hash] = h
	return h
}

// same reports whether two are of one response with this key.
func same(a, b *store.Meta) bool { return a.Asked == b.Asked && a.Born == b.Born && a.Fresh == b.Fresh }

// drop forgets a copy that nobody has any more.
func (f *filter) drop(h *held) {
	if f.shared[h.hash] == h {
		delete(f.shared, h.hash)
	}
	h.value = nil
	f.freeHeld.Put(h)
}

// setConditions asks the application for a response other than the stored one, whose header lines are
// given. The conditions replace those of the client. Their memory is that of the headers that routes set.
func setConditions(ex *exchange.Exchange, stored []byte) {
	hs := dropConditions(ex.Request.Headers)
	race.EachField(stored, func(h protocol.Header) {
		name := caching.NameTag
		switch {
		case protocol.EqualFold(h.Name, "etag"):
		case protocol.EqualFold(h.Name, "last-modified"):
			name = caching.NameDate
		default:
			return
		}
		n := len(ex.Edited)
		ex.Edited = append(ex.Edited, h.Value...)
		hs = append(hs, protocol.Header{Name: name, Value: ex.Edited[n:len(ex.Edited):len(ex.Edited)]})
	})
	ex.Request.Headers = hs
}

func dropConditions(hs []protocol.Header) []protocol.Header {
	return slices.DeleteFunc(hs, func(h protocol.Header) bool {
		return protocol.EqualFold(h.Name, "if-none-match") || protocol.EqualFold(h.Name, "if-modified-since")
	})
}

// restoreConditions gives a request that has failed those of its client again: a fallback may send it.
func (l *lookup) restoreConditions(ex *exchange.Exchange) {
	if l.validates {
		ex.Request.Headers = l.ask.AppendConditions(dropConditions(ex.Request.Headers))
	}
}

// unstored are headers that belong to one response, or to one connection with a proxy (RFC 9111
// section 3.1).
var unstored = []string{"age", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "x-request-id"}

func isUnstored(name []byte) bool {
	return slices.ContainsFunc(unstored, func(other string) bool { return protocol.EqualFold(name, other) })
}

// merge returns a stored response with the headers of a 304, which says that it is still good, in place
// of its own (RFC 9111 section 3.2). The response shares its body if that is in memory.
func (f *filter) merge(m *store.Meta, value []byte, memory *shard.Memory, fresh *race.Response) *race.Response {
	res := f.pool.Response()
	res.Borrow(int(m.Status), value[:m.Fields], value[m.Fields:], memory, m.Flags&caching.FlagNeverIndexed != 0)
	res.Own()
	describes := func(name []byte) bool { // the body, which is the old one
		return slices.ContainsFunc([]string{"content-encoding", "content-type", "content-range", "content-length"}, func(other string) bool {
			return protocol.EqualFold(name, other)
		})
	}
	old := slices.DeleteFunc(res.Headers, func(h protocol.Header) bool {
		return !describes(h.Name) && slices.ContainsFunc(fresh.Headers, func(other protocol.Header) bool { return bytes.EqualFold(h.Name, other.Name) })
	})
	for _, h := range fresh.Headers {
		if !describes(h.Name) {
			old = append(old, protocol.Header{Name: bytes.Clone(h.Name), Value: bytes.Clone(h.Value), NeverIndexed: h.NeverIndexed})
		}
	}
	res.Headers = old
	return res
}

// invalidator notes what may have been changed. Alone, it is the filter of a route without a cache
// whose service has one on another route.
type invalidator struct {
	loop   loop.Loop
	stamps *shard.Stamps
	target []byte // scratch
}

// invalidate notes that what was stored of a target is of no use after a request that may have changed
// it (RFC 9111 section 4.4).
func (v *invalidator) invalidate(req *protocol.Request, res *race.Response) {
	if req.Codec != protocol.CodecHTTP || res.Status >= 400 {
		return
	}
	switch string(req.Method) {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return
	}
	v.target = caching.AppendTarget(v.target[:0], req)
	v.stamps.Invalidate(caching.Hash(v.stamps.Seed, v.target), v.loop.Now())
}

// Request implements exchange.Filter.
func (*invalidator) Request(*exchange.Exchange) exchange.Next { return exchange.Continue }

// Response implements exchange.OutcomeFilter.
func (v *invalidator) Response(ex *exchange.Exchange, res *race.Response) *race.Response {
	v.invalidate(&ex.Request, res)
	return res
}

// Failure implements exchange.OutcomeFilter.
func (*invalidator) Failure(*exchange.Exchange, *fault.Failure) exchange.Next {
	return exchange.Continue
}

// End implements exchange.Filter.
func (*invalidator) End(*exchange.Exchange) {}

// Retire implements exchange.Filter.
func (*invalidator) Retire() {}

// Package cache is the filter that keeps responses of a route, and gives them to later requests (RFC
// 9111).
//
//	filter.go   filter: what it does with a request, and with what that comes to
//	serve.go    responses of stored ones
//	keep.go     storing, validation and invalidation
//	refresh.go  requests of the cache's own
package cache

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// filter is the cache of one route on one loop.
type filter struct {
	invalidator
	shard   *shard.Shard
	pool    *exchange.Pool
	counts  *stats.FilterStats
	reader  *caching.Reader
	policy  caching.Policy
	store   *store.Store
	targets int // for which there is room in the stamps
	retired bool

	open   map[*exchange.Exchange]*lookup // requests that were sent
	shared map[uint64]*held               // by the hash of the entry
	free   shard.FreeList[*lookup]

	freeHeld shard.FreeList[*held]

	refresher refresher
	bytes     int    // of the store, as counted
	evicted   uint64 // the same

	in    input  // the request in hand
	value []byte // scratch; of a response until its caller has it
	names []byte // scratch
}

// input is a request that is looked up.
type input struct {
	caching.Ask
	key     []byte // at first the primary key; then what the response varies by follows
	primary int    // length of the primary key
	hash    uint64 // of the primary key
	target  uint64 // hash of the target, see shard.Stamps
	unfit   bool   // no cache may answer it
	entry   *store.Entry
}

const (
	maxKey     = 1024    // bytes of a key on the free list
	maxScratch = 1 << 20 // bytes of filter.value that are kept
	maxCopied  = 8 << 10 // bytes of a response that is copied; of a longer one responses share the bytes
)

// lookup is a request that was sent, since nothing in the cache was good for it.
type lookup struct {
	ask    caching.Ask
	key    []byte
	hash   uint64
	target uint64 // hash of the target, see shard.Stamps
	asked  time.Duration
	held   *held // what the service may validate, or what is used if it fails; nil means nothing

	validates bool       // the request asks the service whether held is still good
	refreshes store.Meta // of the entry that a refresh validates
}

// held is a copy of an entry. Requests for one entry, and responses with it, share it.
type held struct {
	store.Meta
	shard.Memory
	hash   uint64
	value  []byte
	onFree func() // forget, bound once
}

var (
	_ exchange.OutcomeFilter = (*filter)(nil)
	_ exchange.EarlyFilter   = (*filter)(nil)
)

// New returns the filter of a route, or nil if that has no cache. A route without a cache may
// invalidate what others have stored.
func New(at *exchange.FilterPlace) exchange.Filter {
	c := &at.Route.Cache
	switch {
	case at.Invalidates:
		return &invalidator{loop: at.Shard.Loop, stamps: at.Shard.Invalidated()}
	case !c.Enabled():
		return nil
	}
	room := int(c.Bytes) / at.Shard.Process.Loops / max(1, len(at.Route.Split))
	targets := store.MaxEntries(room)
	f := &filter{
		invalidator: invalidator{loop: at.Shard.Loop, stamps: at.Shard.Invalidated()},
		shard:       at.Shard, pool: at.Pool, counts: &at.Service.Stats.FilterStats, reader: caching.NewReader(c.Key, c.Ignore),
		policy: caching.Policy{TTL: c.TTL, Stale: c.Stale},
		store:  store.New(room - targets*shard.TargetBytes), targets: targets,
		open: make(map[*exchange.Exchange]*lookup), shared: make(map[uint64]*held),
	}
	f.stamps.Expect(targets)
	f.refresher.init(f, at.Service)
	f.counts.Caches = true
	return f
}

// Early implements exchange.EarlyFilter. What is in the cache is no work for the service.
func (f *filter) Early(ex *exchange.Exchange) bool {
	req, in := &ex.Request, &f.in
	in.entry, in.unfit = nil, !cacheable(req)
	if in.unfit || !f.read(req) {
		return false
	}
	in.entry = f.find(req)
	if in.entry == nil {
		return false
	}
	now := f.loop.Now()
	switch in.Use(now, &in.entry.Meta) {
	case caching.Fresh:
		f.serve(ex, stats.CacheHit, now >= in.entry.Refresh)
	case caching.Refresh:
		f.serve(ex, stats.CacheStale, now >= in.entry.Refresh)
	case caching.Stale:
		f.serve(ex, stats.CacheStale, false)
	default:
		return false
	}
	return true
}

// Request implements exchange.Filter. It follows Early.
func (f *filter) Request(ex *exchange.Exchange) exchange.Next {
	in := &f.in
	switch {
	case in.unfit:
		return exchange.Continue
	case in.Pass:
		f.counts.CacheBypassed++
		ex.Cached = stats.CacheBypass
	default:
		f.counts.CacheMisses++
		ex.Cached = stats.CacheMiss
	}
	switch {
	case in.OnlyCached:
		ex.Refuse(fault.NotCached)
		return exchange.Decided
	case in.Pass || isHead(&ex.Request): // the response to a HEAD says less than what is stored
		return exchange.Continue
	}
	e, now := in.entry, f.loop.Now()
	l := f.note(ex, now)
	validator := e != nil && e.Flags&(caching.FlagTag|caching.FlagDate) != 0
	if validator || e != nil && caching.IfError(now, &e.Meta) {
		l.held = f.hold(e)
	}
	if validator {
		l.validates = true
		setConditions(ex, l.held.value[:l.held.Fields])
	}
	return exchange.Continue
}

// read reads a request into f.in, and reports whether it is one for a cache.
func (f *filter) read(req *protocol.Request) bool {
	in := &f.in
	in.key = f.reader.Read(req, &in.Ask, in.key[:0])
	in.primary = len(in.key)
	in.target = caching.Hash(f.stamps.Seed, in.key[:in.Target])
	in.hash = in.target
	if in.primary > in.Target {
		in.hash = caching.Hash(in.target, in.key[in.Target:])
	}
	return !in.Pass
}

// cacheable reports whether a request is one that a cache may answer.
func cacheable(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP || len(req.Body) > 0 || req.Login {
		return false
	}
	return string(req.Method) == "GET" || isHead(req)
}

func isHead(req *protocol.Request) bool { return string(req.Method) == "HEAD" }

// find returns the entry for the request in hand, or nil.
func (f *filter) find(req *protocol.Request) *store.Entry {
	e := f.entry(f.in.hash, &f.in.key, req.Headers)
	switch {
	case e == nil:
		return nil
	case f.stamps.InvalidatedSince(f.in.target, e.Asked):
		f.store.Remove(e)
		return nil
	case e.Flags&caching.FlagOpen == 0 && !f.reader.Shares(&f.in.Ask, f.names, req.Headers):
		return nil
	}
	return e
}

// entry returns the entry for a request with a primary key and these headers, or nil. f.names are what the
// response varies by, and that is appended to the key.
func (f *filter) entry(hash uint64, key *[]byte, headers []protocol.Header) *store.Entry {
	f.names = f.names[:0]
	e := f.store.Find(hash, *key)
	if e == nil || e.Flags&caching.FlagVaries == 0 {
		return e
	}
	f.store.Use(e)
	f.names = f.store.Append(f.names[:0], e)
	*key = caching.AppendVariant(*key, f.names, headers)
	return f.store.Find(variantHash(hash, *key), *key)
}

// variantHash is the hash of the key of a variant; hash is that of the primary key.
func variantHash(hash uint64, key []byte) uint64 { return caching.Hash(hash, key) }

// note remembers that the request in hand is sent now.
func (f *filter) note(ex *exchange.Exchange, now time.Duration) *lookup {
	l, ok := f.free.Take()
	if !ok {
		l = new(lookup)
	}
	in := &f.in
	l.ask, l.key, l.hash, l.target, l.asked = in.Ask, append(l.key, in.key[:in.primary]...), in.hash, in.target, now
	f.open[ex] = l
	f.stamps.Keep(in.target, now, now)
	return l
}

// End implements exchange.Filter.
func (f *filter) End(ex *exchange.Exchange) {
	if l := f.open[ex]; l != nil {
		f.forget(ex, l)
	}
}

func (f *filter) forget(ex *exchange.Exchange, l *lookup) {
	delete(f.open, ex)
	if l.held != nil {
		l.held.Release()
	}
	*l = lookup{key: l.key[:0]}
	if cap(l.key) <= maxKey {
		f.free.Put(l)
	}
}

// Response implements exchange.OutcomeFilter.
func (f *filter) Response(ex *exchange.Exchange, res *race.Response) *race.Response {
	l := f.open[ex]
	if l == nil {
		f.invalidate(&ex.Request, res)
		return marked(ex, res, false)
	}
	now := f.loop.Now()
	mayStore := ex.Cached != stats.CacheCollapsed
	switch {
	case res.Status == 304 && l.validates:
		merged := f.merge(&l.held.Meta, l.held.value, &l.held.Memory, res)
		res.Release()
		f.counts.CacheRevalidated++
		kept := false
		if mayStore {
			ex.Cached = stats.CacheRevalidated
			kept = f.keep(l, ex.Request.Headers, merged, now)
		}
		return f.condition(l, marked(ex, merged, kept))
	case res.Failed() && l.held != nil && caching.IfError(now, &l.held.Meta):
		res.Release()
		return f.condition(l, f.stored(ex, l.held, now))
	}
	kept := mayStore && f.keep(l, ex.Request.Headers, res, now)
	if res.Failed() {
		l.restoreConditions(ex)
	}
	if marked(ex, res, kept); l.validates {
		f.condition(l, res)
	}
	return res
}

// Failure implements exchange.OutcomeFilter. A stored response may take the place of the failure,
// also if the service did not admit the request.
func (f *filter) Failure(ex *exchange.Exchange, why *fault.Failure) exchange.Next {
	now := f.loop.Now()
	if l := f.open[ex]; l != nil {
		if l.held == nil || !caching.IfError(now, &l.held.Meta) {
			l.restoreConditions(ex)
			return exchange.Continue
		}
		ex.Answer(f.condition(l, f.stored(ex, l.held, now)))
		return exchange.Decided
	}
	if ex.Cached != stats.CacheNone || !cacheable(&ex.Request) || !f.read(&ex.Request) {
		return exchange.Continue
	}
	f.in.entry = f.find(&ex.Request)
	if e := f.in.entry; e == nil || !caching.IfError(now, &e.Meta) {
		return exchange.Continue
	}
	f.serve(ex, stats.CacheStale, false)
	return exchange.Decided
}

// Retire implements exchange.Filter. The store goes with the last request of the route.
func (f *filter) Retire() {
	f.retired = true
	f.stamps.Expect(-f.targets)
	f.counts.CacheBytes -= int64(f.bytes)
}

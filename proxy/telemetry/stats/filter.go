package stats

// Injected is a set of faults that a route has injected into a request.
type Injected uint8

// The faults.
const (
	InjectedDelay Injected = 1 << iota
	InjectedAbort
)

// String names the faults; empty means none.
func (i Injected) String() string { return [...]string{"", "delay", "abort", "delay,abort"}[i] }

// Cached is what the cache of a route did for a request, or collapsing.
type Cached uint8

// The values of Cached.
const (
	CacheNone        Cached = iota // the route has neither, or it does not apply
	CacheHit                       // the response is a stored one that is fresh
	CacheStale                     // the response is a stored one that is stale
	CacheMiss                      // none was stored
	CacheRevalidated               // the service says that the stored response is still good
	CacheBypass                    // the request is not one for a cache
	CacheCollapsed                 // the response is that to another request
)

// String returns the name, which is empty for CacheNone.
func (c Cached) String() string {
	return [...]string{"", "hit", "stale", "miss", "revalidated", "bypass", "collapsed"}[c]
}

// FilterStats are the counts of the filters of routes, for one service on one loop.
type FilterStats struct {
	Injects bool   // a route to the service injects faults, or has done so
	Delayed uint64 // requests that were delayed
	Aborted uint64 // requests that were aborted

	Mirrors        bool   // a route sends copies of requests to the service, or has done so
	MirrorAnswered uint64 // copies with a response below 500
	MirrorFailed   uint64 // copies with another response, or none
	MirrorDropped  uint64 // requests that were not copied for want of room

	FallsBack        bool                    // a route to the service has a fallback, or has had one
	FallbackAnswered [FallbackReasons]uint64 // failures for which a fallback answered, by config.FallbackReasons
	FallbackFailed   [FallbackReasons]uint64 // those for which it could not
	Caches           bool                    // a route to the service has a cache, or had one
	CacheHits        uint64                  // responses from the cache that were fresh
	CacheStale       uint64                  // responses from the cache that were stale
	CacheMisses      uint64                  // requests that nothing in the cache was good for
	CacheRevalidated uint64                  // responses from the cache that the service has said to be good
	CacheBypassed    uint64                  // requests that are not for a cache
	CacheRefused     uint64                  // responses that may not be stored, or are too large
	CacheRefreshed   uint64                  // requests of the cache's own, to refresh a response
	CacheEvicted     uint64                  // responses that made room for others
	CacheBytes       int64                   // memory of the caches

	Collapses     bool   // a route to the service collapses requests, or did
	Collapsed     uint64 // requests that got the response to another
	CollapseAlone uint64 // requests that were sent although a same one was in flight
}

// FallbackReasons is how many failures a fallback may answer for.
const FallbackReasons = 6

// Add adds o to s.
func (s *FilterStats) Add(o *FilterStats) {
	s.Injects = s.Injects || o.Injects
	s.Delayed += o.Delayed
	s.Aborted += o.Aborted
	s.Mirrors = s.Mirrors || o.Mirrors
	s.MirrorAnswered += o.MirrorAnswered
	s.MirrorFailed += o.MirrorFailed
	s.MirrorDropped += o.MirrorDropped
	s.FallsBack = s.FallsBack || o.FallsBack
	for i := range FallbackReasons {
		s.FallbackAnswered[i] += o.FallbackAnswered[i]
		s.FallbackFailed[i] += o.FallbackFailed[i]
	}
	s.Caches = s.Caches || o.Caches
	s.CacheHits += o.CacheHits
	s.CacheStale += o.CacheStale
	s.CacheMisses += o.CacheMisses
	s.CacheRevalidated += o.CacheRevalidated
	s.CacheBypassed += o.CacheBypassed
	s.CacheRefused += o.CacheRefused
	s.CacheRefreshed += o.CacheRefreshed
	s.CacheEvicted += o.CacheEvicted
	s.CacheBytes += o.CacheBytes
	s.Collapses = s.Collapses || o.Collapses
	s.Collapsed += o.Collapsed
	s.CollapseAlone += o.CollapseAlone
}

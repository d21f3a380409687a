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
}

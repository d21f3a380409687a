package proxy

import (
	"sync/atomic"
	"time"
)

// listener is one loop's side of a listener.
type listener struct {
	name, protocol string

	trusted  bool          // its peers are on this host
	sidecars bool          // its peers are sidecars
	links    *atomic.Int32 // of the listener, over all loops

	direct *route     // of a listener with a fixed service, else nil
	rate   *rateLimit // nil: none
	shut   bool       // the listener is gone, or about to go
}

// limited reports whether the listener's rate limit refuses a request or stream at
// now, which takes a token if not.
func (l *listener) limited(now time.Duration) bool { return l.rate != nil && !l.rate.take(now) }

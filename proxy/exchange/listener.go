package exchange

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/limit"
)

// Listener is one loop's side of a listener.
type Listener struct {
	Name, Protocol string

	Trusted  bool          // its peers are on this host
	Sidecars bool          // its peers are sidecars
	Links    *atomic.Int32 // of the listener, over all loops

	Direct  *Route      // of a listener with a fixed service, else nil
	Rate    *limit.Rate // nil: none
	Closing bool        // the listener is gone, or about to go
}

// Limited reports whether the listener's rate limit refuses a request or stream at
// now, which takes a token if not.
func (l *Listener) Limited(now time.Duration) bool { return l.Rate != nil && !l.Rate.Take(now) }

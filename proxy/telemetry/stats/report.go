package stats

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// BreakerState is where a service's breaker stands.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerNone     BreakerState = iota // the service has none
	BreakerClosed                       // requests pass
	BreakerOpen                         // none passes
	BreakerHalfOpen                     // a probe may pass, or is out
)

// WorkerReport is what one loop knows at one moment, as plain data: nothing in
// it refers to what the loop goes on using.
type WorkerReport struct {
	Generation uint64 // of the configuration that the loop works by
	Stats      WorkerStats
	Loop       LoopStats       // zero where the driver does not count
	Services   []ServiceReport // by name
}

// ServiceReport is one service as one loop sees it.
type ServiceReport struct {
	Name    string
	Version uint64 // of the snapshot in use; 0: none yet
	Stats   ServiceStats

	Breaker        BreakerState
	Panics         bool    // so many endpoints are unhealthy or ejected that none counts as such
	HedgesInFlight int     // losers that are not over yet included
	Tokens         float64 // hedges and paid retries that could be sent at once

	// Routes that lead to the service, in order of configuration; the one of
	// listeners with a fixed service comes last.
	Routes    []RouteReport
	Endpoints []EndpointReport // by address
}

// RouteReport is what hedging does on one route.
type RouteReport struct {
	Route int        // index in Config.Routes; -1: of listeners with a fixed service
	Mode  hedge.Mode // as configured
	// Delay is how long a request waits for its hedge now; what it would wait
	// where hedging is off.
	Delay time.Duration

	Counts    hedge.Counts
	Recent    int                // hedges that the gate useless remembers
	RecentWon int                // of these, the ones that won
	Latency   hedge.Distribution // of primaries
	Forecasts []hedge.Forecast   // with mode shadow only
}

// EndpointReport is one endpoint as one loop sees it.
type EndpointReport struct {
	Addr        string
	Connections int           // open ones and those being dialled
	Pending     int           // this loop's attempts and streams there
	Latency     time.Duration // recent average; 0: unknown
	Stalled     bool          // silent for too long with requests pending
	Unhealthy   bool          // by its active health check
	Ejected     bool          // until it has served a probe
	EjectedBy   lb.Reason     // why, if Ejected
	Others      float64       // load of others that its sidecar reported
	Reported    bool          // Others is less than a second old
	Ejections   uint64        // so far
	Stats       EndpointStats
}

package stats

import (
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/choice"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
)

// BreakerState is the state of a service's circuit breaker.
type BreakerState uint8

const (
	BreakerNone     BreakerState = iota // the service has no breaker
	BreakerClosed                       // requests pass
	BreakerOpen                         // no request passes
	BreakerHalfOpen                     // probes may pass, or are in flight
)

// WorkerReport is the state of one loop at one moment. It shares no memory with the loop.
type WorkerReport struct {
	Generation uint64 // of the configuration that the loop uses
	Stats      WorkerStats
	Loop       LoopStats       // zero if the driver does not count
	Uncounted  int64           // bytes held that Process.Buffered does not include yet
	Services   []ServiceReport // by name
}

// ServiceReport is the state of one service on one loop.
type ServiceReport struct {
	Name    string
	Version uint64 // of the snapshot in use; 0 means that none has arrived
	Stats   ServiceStats

	Breaker        BreakerState
	Panics         bool    // too many endpoints are unhealthy or ejected, so all are used
	HedgesInFlight int     // also those that have lost and not ended
	Tokens         float64 // hedges and paid retries that could be sent at once

	Stalls    periodic.Period // in which the endpoints stall together
	StalledAt time.Time       // the time of day of Stalls.Last; zero without a clock or a period

	// Routes to the service, as configured; last the route of listeners with a fixed service.
	Routes    []RouteReport
	Endpoints []EndpointReport // by address
}

// RouteReport is the state of hedging on one route.
type RouteReport struct {
	Route int        // index in Config.Routes; -1 for listeners with a fixed service
	Mode  hedge.Mode // as configured
	// Delay is the time after which a request is hedged now, or would be if hedging were on.
	Delay time.Duration
	// Choice says why, if the delay is the best one.
	Choice choice.Choice

	Counts  hedge.Counts
	Latency histogram.Distribution // of primaries

	// With more Detail than Counters.
	Classes []hedge.ClassReport
	Effect  *hedge.Effect // with mode on only

	// With more Detail than Counters, and mode shadow only.
	Watched   histogram.Distribution // of the primaries of which the forecasts are made
	Forecasts []forecast.Forecast    // the one with Delay first
}

// Detail says how many forecasts a report has. Each takes a loop a few microseconds for each
// route, and so do the classes and the effect.
type Detail int

const (
	Totals    Detail = -1 // the counters of services alone: no route and no endpoint
	Counters  Detail = 0  // no forecast, class or effect
	Verdicts  Detail = 1  // the forecast with the delay in force
	Forecasts Detail = 64 // all
)

// failingInRow is how many attempts must have failed in a row before an endpoint that has
// served some is failing.
const failingInRow = 3

// Failing reports whether an endpoint fails its attempts: the last ones, or all that it ever had.
func (e *EndpointReport) Failing() bool {
	served := e.Stats.Outcomes[AttemptServed] + e.Stats.Outcomes[AttemptUnseen]
	return e.RecentGood == 0 && (e.FailedInRow >= failingInRow || e.FailedInRow > 0 && served == 0)
}

// EndpointReport is the state of one endpoint on one loop.
type EndpointReport struct {
	Addr        string         // "ip:port"
	Connections int            // open connections and dials in progress
	Pending     int            // attempts and streams of this loop in flight
	Latency     time.Duration  // recent average; 0 means unknown
	Stalled     bool           // it has requests pending and was silent for too long
	Unhealthy   bool           // by its active health check
	FailedInRow int            // attempts that failed since the last good one
	RecentGood  int            // good attempts of the last 5 to 10 s
	Ejected     bool           // until it has served a probe
	EjectedBy   outlier.Reason // the reason, if Ejected
	Others      float64        // load by other callers, as its sidecar reported it
	Reported    bool           // Others is less than a second old
	Ejections   uint64         // so far
	Stats       EndpointStats
}

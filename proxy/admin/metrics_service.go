package admin

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// The families of a service.
var (
	requests = counter("requests_total",
		"Requests that ended, by the class of the application's answer, failed (see errors_total) or cancelled.",
		"service", "outcome")
	duration = timeHistogram("request_duration_seconds",
		"From the complete request to the complete answer, cancelled requests left out.", requestBounds, "service")
	requestBytes = counter("request_bytes_total",
		"Headers and bodies of requests admitted (in) and of the application's answers (out), streams left out.",
		"service", "direction")
	pending     = gauge("requests_pending", "Requests in flight, losers still at an application included.", "service")
	pendingMax  = gauge("requests_pending_limit", "max_pending.", "service")
	slots       = gauge("slots_in_use", "Requests at the application, of max_concurrency.", "service")
	slotsMax    = gauge("slots_limit", "What max_concurrency is now; 0: no limit.", "service")
	queued      = gauge("requests_queued", "Requests that wait for a slot.", "service")
	breaker     = gauge("breaker_state", "Of the breaker, if there is one; 1: closed, 2: open, 3: half-open.", "service")
	retries     = counter("retries_total", "Attempts after a failed one.", "service")
	retriesOver = counter("retries_over_budget_total", "Retries not made for want of budget.", "service")
	endpoints   = gauge("endpoints", "Endpoints known.", "service")
	unhealthy   = gauge("endpoints_unhealthy", "Those of them that fail their active health check, if there is one.", "service")
	ejections   = counter("ejections_total", "Ejections of endpoints, by the loop and by reason: the key of outlier.", "service", "reason")
	panicking   = gauge("endpoints_panic", "1 while so many endpoints are unhealthy or ejected that none counts as such.", "service")
	snapshotAt  = gauge("endpoints_changed_timestamp_seconds",
		"When the endpoints became what they are, by where they are known from.", "service", "source")
)

// The families of streams.
var (
	streams = counter("streams_total",
		"Streams by what became of them: connected, or failed to.", "service", "result")
	streamsOpen = gauge("streams_open", "Streams open now.", "service")
	streamBytes = counter("stream_bytes_total",
		"Bytes of streams that ended: in, towards the endpoint, and out, from it.", "service", "direction")
)

// The families of hedging.
var (
	hedges    = counter("hedges_total", "Hedges sent; those of them that won, and that reached no application (missed).", "service", "result")
	gates     = counter("hedge_gates_total", "Decisions not to hedge, by the gate that was closed.", "service", "gate")
	hedgesOut = gauge("hedges_in_flight", "Hedges that are not over.", "service")
	delay     = gauge("hedge_delay_seconds", "How long a request waits for its hedge, the longest of all loops.",
		"service", "route")
)

func (c *collector) service(to *page, svc *stats.ServiceReport) {
	p, cfg, name := c.s.opt.Process, c.s.service(svc.Name), svc.Name
	for o, n := range svc.Stats.Outcomes {
		to.put(requests, float64(n), name, stats.Outcome(o).String())
	}
	to.times(duration, &svc.Stats.Latency, name)
	to.put(requestBytes, float64(svc.Stats.BytesIn), name, "in")
	to.put(requestBytes, float64(svc.Stats.BytesOut), name, "out")
	to.put(pending, float64(p.ServicePending(name)), name)
	to.put(pendingMax, float64(cfg.MaxPending), name)
	inUse, waiting := p.Slots(name)
	to.put(slots, float64(inUse), name)
	to.put(slotsMax, float64(p.SlotLimit(name)), name)
	to.put(queued, float64(waiting), name)
	if svc.Breaker != stats.BreakerNone {
		to.put(breaker, float64(svc.Breaker), name)
	}
	to.put(retries, float64(svc.Stats.Retries), name)
	to.put(retriesOver, float64(svc.Stats.RetriesOverBudget), name)
	to.put(streams, float64(svc.Stats.Streams), name, "connected")
	to.put(streams, float64(svc.Stats.StreamsFailed), name, "failed")
	to.put(streamsOpen, float64(svc.Stats.StreamsOpen), name)
	to.put(streamBytes, float64(svc.Stats.StreamBytesIn), name, "in")
	to.put(streamBytes, float64(svc.Stats.StreamBytesOut), name, "out")
	to.put(endpoints, float64(len(svc.Endpoints)), name)
	if cfg.Check.Enabled() {
		to.put(unhealthy, float64(countUnhealthy(svc.Endpoints)), name)
	}
	for why, n := range svc.Stats.Ejections {
		to.put(ejections, float64(n), name, lb.Reason(why).String())
	}
	to.put(panicking, truth(svc.Panics), name)
	if snap := p.Snapshot(name); snap != nil && !snap.Changed.IsZero() {
		to.put(snapshotAt, float64(snap.Changed.UnixMilli())/1000, name, string(snap.Source))
	}
}

func countUnhealthy(list []stats.EndpointReport) (n int) {
	for i := range list {
		if list[i].Unhealthy {
			n++
		}
	}
	return n
}

func (c *collector) hedging(to *page, svc *stats.ServiceReport) {
	name := svc.Name
	to.put(hedges, float64(svc.Stats.Hedges), name, "sent")
	to.put(hedges, float64(svc.Stats.HedgesWon), name, "won")
	to.put(hedges, float64(svc.Stats.HedgesMissed), name, "missed")
	for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
		to.put(gates, float64(svc.Stats.Gates[g]), name, g.String())
	}
	to.put(hedgesOut, float64(svc.HedgesInFlight), name)
	for _, r := range svc.Routes {
		to.put(delay, r.Delay.Seconds(), name, routeName(r.Route))
	}
}

package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// The families of a service.
var (
	requests = counter("requests_total",
		"Requests that ended, by the class of the application's answer, failed (see errors_total) or cancelled.",
		"service", "outcome")
	duration = describe("request_duration_seconds",
		"From the complete request to the complete answer, cancelled requests left out.", "service")
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
	hedges    = counter("hedges_total", "Hedges sent, and those of them that won.", "service", "result")
	gates     = counter("hedge_gates_total", "Decisions not to hedge, by the gate that was closed.", "service", "gate")
	hedgesOut = gauge("hedges_in_flight", "Hedges that are not over.", "service")
	delay     = gauge("hedge_delay_seconds", "How long a request waits for its hedge, the longest of all loops.",
		"service", "route")
)

// The families of an endpoint: of up to maxEndpointSeries a service.
var (
	endpointPending  = gauge("endpoint_pending", "This sidecar's attempts at the endpoint.", "service", "endpoint")
	endpointLatency  = gauge("endpoint_latency_seconds", "Recent latency, the longest of all loops.", "service", "endpoint")
	endpointReported = gauge("endpoint_reported", "Load of other consumers, as the endpoint's sidecar reports it.", "service", "endpoint")
	endpointStalled  = gauge("endpoint_stalled", "1 while picks avoid the endpoint for its silence.", "service", "endpoint")
	endpointHealthy  = gauge("endpoint_healthy", "0 while the endpoint fails its active health check, if there is one.", "service", "endpoint")
	endpointConns    = gauge("endpoint_connections", "Connections to the endpoint.", "service", "endpoint")
)

// bucketBounds are the buckets of remora_request_duration_seconds. Each is a
// bound of proxy.Histogram, so that the counts are exact. They are close where
// services worth hedging have their tail, from 1 to 100 ms.
var bucketBounds = []time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 60 * time.Second,
}

func (c *collector) service(to sink, svc *proxy.ServiceReport) {
	p, cfg, name := c.s.opt.Process, c.s.opt.Config.Services[svc.Name], svc.Name
	for o, n := range svc.Stats.Outcomes {
		to.put(requests, float64(n), name, proxy.Outcome(o).String())
	}
	to <- latency(&svc.Stats.Latency, name)
	to.put(pending, float64(p.ServicePending(name)), name)
	to.put(pendingMax, float64(cfg.MaxPending), name)
	inUse, waiting := p.Slots(name)
	to.put(slots, float64(inUse), name)
	to.put(slotsMax, float64(p.SlotLimit(name)), name)
	to.put(queued, float64(waiting), name)
	if svc.Breaker != proxy.BreakerNone {
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
	if snap := p.Snapshot(name); snap != nil && !snap.Changed.IsZero() {
		to.put(snapshotAt, float64(snap.Changed.UnixMilli())/1000, name, string(snap.Source))
	}
}

func countUnhealthy(list []proxy.EndpointReport) (n int) {
	for i := range list {
		if list[i].Unhealthy {
			n++
		}
	}
	return n
}

// latency is h as a classic histogram.
func latency(h *proxy.Histogram, service string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(bucketBounds))
	var seen uint64
	next := 0
	for i, n := range h.Counts {
		seen += n
		if next < len(bucketBounds) && proxy.HistogramBound(i) == bucketBounds[next] {
			cumulative[bucketBounds[next].Seconds()] = seen
			next++
		}
	}
	return prometheus.MustNewConstHistogram(duration, seen, h.Sum.Seconds(), cumulative, service)
}

func (c *collector) hedging(to sink, svc *proxy.ServiceReport) {
	name := svc.Name
	to.put(hedges, float64(svc.Stats.Hedges), name, "sent")
	to.put(hedges, float64(svc.Stats.HedgesWon), name, "won")
	for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
		to.put(gates, float64(svc.Stats.Gates[g]), name, g.String())
	}
	to.put(hedgesOut, float64(svc.HedgesInFlight), name)
	for _, r := range svc.Routes {
		to.put(delay, r.Delay.Seconds(), name, routeName(r.Route))
	}
}

func (c *collector) endpoints(to sink, svc *proxy.ServiceReport) {
	list, checked := svc.Endpoints, c.s.opt.Config.Services[svc.Name].Check.Enabled()
	if len(list) > maxEndpointSeries {
		list = list[:maxEndpointSeries]
	}
	for i := range list {
		e := &list[i]
		to.put(endpointPending, float64(e.Pending), svc.Name, e.Addr)
		to.put(endpointLatency, e.Latency.Seconds(), svc.Name, e.Addr)
		to.put(endpointStalled, truth(e.Stalled), svc.Name, e.Addr)
		if checked {
			to.put(endpointHealthy, truth(!e.Unhealthy), svc.Name, e.Addr)
		}
		to.put(endpointConns, float64(e.Connections), svc.Name, e.Addr)
		if e.Reported {
			to.put(endpointReported, e.Others, svc.Name, e.Addr)
		}
	}
}

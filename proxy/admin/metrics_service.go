package admin

import (
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// The families of a service.
var (
	requests = counter("requests_total",
		"Requests that ended, by outcome: the class of the application's response, failed (see errors_total) or cancelled.",
		"service", "outcome")
	grpcRequests = counter("grpc_requests_total",
		"gRPC calls by the code that the caller got; streams count at their end. A service has series after its first call.",
		"service", "code")
	batch    = counter("requests_batch_total", "Of these, batch requests.", "service", "outcome")
	duration = timeHistogram("request_duration_seconds",
		"Time from the complete request to the complete response, without cancelled requests, and of the failed ones only those that timed out.", requestBounds, "service")
	requestBytes = counter("request_bytes_total",
		"Header and body bytes of admitted requests (in) and of the application's responses (out), without streams.",
		"service", "direction")
	pending        = gauge("requests_pending", "Requests in flight, with withdrawn attempts that are still at an application.", "service")
	pendingMax     = gauge("requests_pending_limit", "The setting max_pending.", "service")
	slots          = gauge("slots_in_use", "Requests at the application, as max_concurrency counts them.", "service")
	slotsMax       = gauge("slots_limit", "The value of max_concurrency now. 0 means no limit.", "service")
	queued         = gauge("requests_queued", "Requests that wait for a slot.", "service")
	breaker        = gauge("breaker_state", "State of the breaker, if configured: 1 closed, 2 open, 3 half-open.", "service")
	retries        = counter("retries_total", "Attempts after a failed attempt.", "service")
	retriesOver    = counter("retries_over_budget_total", "Retries not made because the budget was spent.", "service")
	retriesCascade = counter("retries_cascade_total", "Paid retries not made because the request was a hedge or retry.", "service")
	unwantedEnds   = counter("unwanted_attempts_total",
		"Attempts at an HTTP/1.1 application that nobody awaited any more: its connection was closed, or it was left to finish (finished).", "service", "end")
	endpoints  = gauge("endpoints", "Known endpoints.", "service")
	unhealthy  = gauge("endpoints_unhealthy", "Endpoints that fail their active health check, if configured.", "service")
	ejections  = counter("ejections_total", "Ejections of endpoints, counted per loop. The reason is the key of outlier.", "service", "reason")
	passedOver = counter("endpoints_passed_over_total", "Requests and streams for which the owner of their key was passed over, with consistent_hash.", "service")
	probes     = counter("probes_total",
		"Probes for load: sent, answers that came, probes of other sidecars answered, and those dropped because earlier output waited.",
		"service", "kind")
	probeWaits = counter("probe_waits_total",
		"Requests that waited for answers to probes: enough came in time, or the wait was over first (late).", "service", "result")
	panicking  = gauge("endpoints_panic", "1 while so many endpoints are unhealthy or ejected that all are used.", "service")
	snapshotAt = gauge("endpoints_changed_timestamp_seconds",
		"Time of the last change of the endpoints, by its source.", "service", "source")
)

// The families of streams.
var (
	streams = counter("streams_total",
		"Streams that connected, and streams that failed. A stream that fails after it has connected counts in both.", "service", "result")
	streamsOpen = gauge("streams_open", "Open streams.", "service")
	streamBytes = counter("stream_bytes_total",
		"Bytes of ended streams, to the endpoint (in) and from it (out).", "service", "direction")
)

// The families of hedging.
var (
	hedges    = counter("hedges_total", "Hedges sent, hedges that won, and hedges that reached no application (missed).", "service", "result")
	tied      = counter("hedges_tied_total", "Tied hedges of consumers that waited here for a slot (queued), and those of them that left without one (withdrawn).", "service", "result")
	gates     = counter("hedge_gates_total", "Decisions not to hedge, by the closed gate.", "service", "gate")
	hedgesOut = gauge("hedges_in_flight", "Hedges in flight.", "service")
	stallsOf  = gauge("correlated_stall_period_seconds", "Period in which the endpoints stall together. 0 means that none is known.", "service")
	delay     = gauge("hedge_delay_seconds", "Delay of a hedge, the longest of all loops.",
		"service", "route")
)

func (c *scraper) service(to *page, svc *stats.ServiceReport) {
	p, cfg, name := c.s.opt.Process, c.s.service(svc.Name), svc.Name
	for o, n := range svc.Stats.Outcomes {
		to.put(requests, float64(n), name, stats.Outcome(o).String())
		to.put(batch, float64(svc.Stats.Batch[o]), name, stats.Outcome(o).String())
	}
	if svc.Stats.GRPC != (stats.GRPCCodes{}) {
		for c, n := range svc.Stats.GRPC {
			to.put(grpcRequests, float64(n), name, protocol.GRPCCode(c).String())
		}
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
	to.put(retriesCascade, float64(svc.Stats.RetriesCascade), name)
	to.put(unwantedEnds, float64(svc.Stats.UnwantedClosed), name, "closed")
	to.put(unwantedEnds, float64(svc.Stats.UnwantedFinished), name, "finished")
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
		to.put(ejections, float64(n), name, outlier.Reason(why).String())
	}
	if cfg.LB.Policy == config.LBConsistentHash {
		to.put(passedOver, float64(svc.Stats.PassedOver), name)
	}
	for kind, n := range map[string]uint64{
		"sent": svc.Stats.Probes.Sent, "answers": svc.Stats.Probes.Answers,
		"answered": svc.Stats.Probes.Answered, "dropped": svc.Stats.Probes.Dropped,
	} {
		to.put(probes, float64(n), name, kind)
	}
	to.put(probeWaits, float64(svc.Stats.Probes.Waits-svc.Stats.Probes.InVain), name, "enough")
	to.put(probeWaits, float64(svc.Stats.Probes.InVain), name, "late")
	to.put(panicking, truth(svc.Panics), name)
	if snap := p.Snapshot(name); snap != nil && !snap.Changed.IsZero() {
		to.put(snapshotAt, float64(snap.Changed.UnixMilli())/1000, name, string(snap.Source))
	}
}

// The families of filters. They have series for services to which a route with the filter leads.
var (
	faults  = counter("faults_injected_total", "Requests that a route has delayed or aborted on purpose.", "service", "fault")
	mirrors = counter("mirrored_total",
		"Copies of requests: answered, failed (5xx or no response), or dropped for want of room.", "service", "outcome")
	fallbacks = counter("fallbacks_total",
		"Failures for which a fallback of a route answered, or failed to.", "service", "reason", "result")
)

// The families of caches and of collapsed requests.
var (
	caching = counter("cache_requests_total",
		"Requests of routes with a cache or collapsing: hit, stale, miss (also if it then counts as stale, revalidated or collapsed), revalidated, bypassed (not for a cache), collapsed (got the response to another), alone (sent although a same one was in flight, or shortly before).",
		"service", "result")
	cacheStores = counter("cache_responses_total", "Responses that were not stored (refused), evicted, or requested by the cache (refreshed).", "service", "event")
	cacheMemory = gauge("cache_bytes", "Memory of caches, over all loops.", "service")
)

func (c *scraper) caches(to *page, svc *stats.ServiceReport) {
	f := &svc.Stats.FilterStats
	if f.Caches {
		to.put(caching, float64(f.CacheHits), svc.Name, "hit")
		to.put(caching, float64(f.CacheStale), svc.Name, "stale")
		to.put(caching, float64(f.CacheMisses), svc.Name, "miss")
		to.put(caching, float64(f.CacheRevalidated), svc.Name, "revalidated")
		to.put(caching, float64(f.CacheBypassed), svc.Name, "bypassed")
		to.put(cacheStores, float64(f.CacheRefused), svc.Name, "refused")
		to.put(cacheStores, float64(f.CacheEvicted), svc.Name, "evicted")
		to.put(cacheStores, float64(f.CacheRefreshed), svc.Name, "refreshed")
		to.put(cacheMemory, float64(f.CacheBytes), svc.Name)
	}
	if f.Collapses {
		to.put(caching, float64(f.Collapsed), svc.Name, "collapsed")
		to.put(caching, float64(f.CollapseAlone), svc.Name, "alone")
	}
}

func (c *scraper) filters(to *page, svc *stats.ServiceReport) {
	f := &svc.Stats.FilterStats
	if f.Injects {
		to.put(faults, float64(f.Delayed), svc.Name, "delay")
		to.put(faults, float64(f.Aborted), svc.Name, "abort")
	}
	if f.Mirrors {
		to.put(mirrors, float64(f.MirrorAnswered), svc.Name, "answered")
		to.put(mirrors, float64(f.MirrorFailed), svc.Name, "failed")
		to.put(mirrors, float64(f.MirrorDropped), svc.Name, "dropped")
	}
	if f.FallsBack {
		for i, reason := range config.FallbackReasons {
			to.put(fallbacks, float64(f.FallbackAnswered[i]), svc.Name, reason, "answered")
			to.put(fallbacks, float64(f.FallbackFailed[i]), svc.Name, reason, "failed")
		}
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

func (c *scraper) hedging(to *page, svc *stats.ServiceReport) {
	name := svc.Name
	to.put(hedges, float64(svc.Stats.Hedges), name, "sent")
	to.put(hedges, float64(svc.Stats.HedgesWon), name, "won")
	to.put(hedges, float64(svc.Stats.HedgesMissed), name, "missed")
	to.put(tied, float64(svc.Stats.TiedQueued), name, "queued")
	to.put(tied, float64(svc.Stats.TiedWithdrawn), name, "withdrawn")
	for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
		to.put(gates, float64(svc.Stats.Gates[g]), name, g.String())
	}
	to.put(hedgesOut, float64(svc.HedgesInFlight), name)
	to.put(stallsOf, svc.Stalls.Every.Seconds(), name)
	for _, r := range svc.Routes {
		to.put(delay, r.Delay.Seconds(), name, routeName(r.Route))
	}
}

package admin

import "github.com/remora-proxy/remora/proxy/telemetry/stats"

// The families of endpoints. At most maxEndpointSeries endpoints of a service have series.
var (
	attempts = counter("endpoint_attempts_total",
		"Attempts by result: served, failure (status 5xx), broken (no response, by the endpoint's fault), "+
			"unseen (a response that came after the attempt was over), closed (nobody awaited it any more), none (withdrawn, refused or too late).",
		"service", "endpoint", "result")
	attemptDuration = timeHistogram("endpoint_attempt_duration_seconds",
		"Time from sending an attempt to its response below 500, even if that came after the attempt was over.", attemptBounds, "service", "endpoint")
	endpointRetries   = counter("endpoint_retries_total", "Attempts that were retries.", "service", "endpoint")
	endpointHedges    = counter("endpoint_hedges_total", "Attempts that were hedges.", "service", "endpoint")
	endpointEjections = counter("endpoint_ejections_total", "Ejections of the endpoint, counted per loop.", "service", "endpoint")
	endpointBytes     = counter("endpoint_bytes_total",
		"Header and body bytes of attempts (in) and of their responses (out), without streams.", "service", "endpoint", "direction")
	endpointPending  = gauge("endpoint_pending", "Attempts of this sidecar in flight at the endpoint.", "service", "endpoint")
	endpointLatency  = gauge("endpoint_latency_seconds", "Recent latency, the longest of all loops.", "service", "endpoint")
	endpointReported = gauge("endpoint_reported", "Load from other consumers, as reported by the endpoint's sidecar.", "service", "endpoint")
	endpointStalled  = gauge("endpoint_stalled", "1 while picks avoid the endpoint because it is silent.", "service", "endpoint")
	endpointHealthy  = gauge("endpoint_healthy", "0 while the endpoint fails its active health check, if configured.", "service", "endpoint")
	endpointEjected  = gauge("endpoint_ejected", "1 while any loop has ejected the endpoint.", "service", "endpoint")
	endpointConns    = gauge("endpoint_connections", "Connections to the endpoint.", "service", "endpoint")
)

func (c *scraper) endpoints(to *page, svc *stats.ServiceReport) {
	list, checked := svc.Endpoints, c.s.service(svc.Name).Check.Enabled()
	if len(list) > maxEndpointSeries {
		list = list[:maxEndpointSeries]
	}
	for i := range list {
		e := &list[i]
		c.attempts(to, svc.Name, e)
		to.put(endpointPending, float64(e.Pending), svc.Name, e.Addr)
		to.put(endpointLatency, e.Latency.Seconds(), svc.Name, e.Addr)
		to.put(endpointStalled, truth(e.Stalled), svc.Name, e.Addr)
		if checked {
			to.put(endpointHealthy, truth(!e.Unhealthy), svc.Name, e.Addr)
		}
		to.put(endpointEjected, truth(e.Ejected), svc.Name, e.Addr)
		to.put(endpointConns, float64(e.Connections), svc.Name, e.Addr)
		if e.Reported {
			to.put(endpointReported, e.Others, svc.Name, e.Addr)
		}
	}
}

func (c *scraper) attempts(to *page, service string, e *stats.EndpointReport) {
	st := &e.Stats
	for how, n := range st.Outcomes {
		to.put(attempts, float64(n), service, e.Addr, stats.AttemptOutcome(how).String())
	}
	to.times(attemptDuration, &st.Latency, service, e.Addr)
	to.put(endpointRetries, float64(st.Retries), service, e.Addr)
	to.put(endpointHedges, float64(st.Hedges), service, e.Addr)
	to.put(endpointEjections, float64(e.Ejections), service, e.Addr)
	to.put(endpointBytes, float64(st.BytesIn), service, e.Addr, "in")
	to.put(endpointBytes, float64(st.BytesOut), service, e.Addr, "out")
}

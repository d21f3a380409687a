package admin

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
	"github.com/remora-proxy/remora/proxy/telemetry/otlp"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// collected returns the families of what put adds to a page.
func collected(t *testing.T, put func(c *scraper, p *page), api *Server) map[string]*dto.MetricFamily {
	t.Helper()
	p := newPage()
	put(&scraper{s: api}, p)
	p.finish()
	return parse(t, p.text.String())
}

// counted is a count, and the series that has it.
type counted struct {
	of           *uint64
	name, labels string
}

// TestSeriesOfService: each count of a service is the value of its own series.
func TestSeriesOfService(t *testing.T) {
	api := newSidecar(t, twoServices).api
	svc := stats.ServiceReport{Name: "empty"} // has consistent_hash
	st := &svc.Stats
	st.Injects, st.Mirrors, st.FallsBack, st.Caches, st.Collapses = true, true, true, true, true
	const of = "service=empty"
	all := []counted{
		{&st.GRPC[14], "grpc_requests_total", "code=unavailable," + of},
		{&st.BytesIn, "request_bytes_total", "direction=in," + of},
		{&st.BytesOut, "request_bytes_total", "direction=out," + of},
		{&st.Retries, "retries_total", of},
		{&st.RetriesOverBudget, "retries_over_budget_total", of},
		{&st.RetriesCascade, "retries_cascade_total", of},
		{&st.UnwantedClosed, "unwanted_attempts_total", "end=closed," + of},
		{&st.UnwantedFinished, "unwanted_attempts_total", "end=finished," + of},
		{&st.Streams, "streams_total", "result=connected," + of},
		{&st.StreamsFailed, "streams_total", "result=failed," + of},
		{&st.StreamBytesIn, "stream_bytes_total", "direction=in," + of},
		{&st.StreamBytesOut, "stream_bytes_total", "direction=out," + of},
		{&st.PassedOver, "endpoints_passed_over_total", of},
		{&st.Probes.Sent, "probes_total", "kind=sent," + of},
		{&st.Probes.Answers, "probes_total", "kind=answers," + of},
		{&st.Probes.Answered, "probes_total", "kind=answered," + of},
		{&st.Probes.Dropped, "probes_total", "kind=dropped," + of},
		{&st.Probes.InVain, "probe_waits_total", "result=late," + of},
		{&st.Hedges, "hedges_total", "result=sent," + of},
		{&st.HedgesWon, "hedges_total", "result=won," + of},
		{&st.HedgesMissed, "hedges_total", "result=missed," + of},
		{&st.TiedQueued, "hedges_tied_total", "result=queued," + of},
		{&st.TiedWithdrawn, "hedges_tied_total", "result=withdrawn," + of},
		{&st.Delayed, "faults_injected_total", "fault=delay," + of},
		{&st.Aborted, "faults_injected_total", "fault=abort," + of},
		{&st.MirrorAnswered, "mirrored_total", "outcome=answered," + of},
		{&st.MirrorFailed, "mirrored_total", "outcome=failed," + of},
		{&st.MirrorDropped, "mirrored_total", "outcome=dropped," + of},
		{&st.FallbackAnswered[1], "fallbacks_total", "reason=deadline,result=answered," + of},
		{&st.FallbackFailed[5], "fallbacks_total", "reason=5xx,result=failed," + of},
		{&st.CacheHits, "cache_requests_total", "result=hit," + of},
		{&st.CacheStale, "cache_requests_total", "result=stale," + of},
		{&st.CacheMisses, "cache_requests_total", "result=miss," + of},
		{&st.CacheRevalidated, "cache_requests_total", "result=revalidated," + of},
		{&st.CacheBypassed, "cache_requests_total", "result=bypassed," + of},
		{&st.Collapsed, "cache_requests_total", "result=collapsed," + of},
		{&st.CollapseAlone, "cache_requests_total", "result=alone," + of},
		{&st.CacheRefused, "cache_responses_total", "event=refused," + of},
		{&st.CacheEvicted, "cache_responses_total", "event=evicted," + of},
		{&st.CacheRefreshed, "cache_responses_total", "event=refreshed," + of},
	}
	for o := range st.Outcomes {
		all = append(all,
			counted{&st.Outcomes[o], "requests_total", "outcome=" + stats.Outcome(o).String() + "," + of},
			counted{&st.Batch[o], "requests_batch_total", "outcome=" + stats.Outcome(o).String() + "," + of})
	}
	for why := range st.Ejections {
		all = append(all, counted{&st.Ejections[why], "ejections_total", "reason=" + outlier.Reason(why).String() + "," + of})
	}
	for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
		all = append(all, counted{&st.Gates[g], "hedge_gates_total", "gate=" + g.String() + "," + of})
	}
	for i, c := range all {
		*c.of = uint64(100 + i)
	}
	st.Probes.Waits, st.StreamsOpen, st.CacheBytes = 1000, 2, 3
	svc.Breaker, svc.Panics, svc.HedgesInFlight = stats.BreakerOpen, true, 4
	svc.Stalls = periodic.Period{Every: 90 * time.Second}
	svc.Routes = []stats.RouteReport{{Route: -1, Delay: 7 * time.Millisecond}, {Route: 2, Delay: 8 * time.Millisecond}}
	svc.Endpoints = []stats.EndpointReport{{Addr: "x", Unhealthy: true}, {Addr: "y"}, {Addr: "z", Unhealthy: true}}
	collect := func() map[string]*dto.MetricFamily {
		return collected(t, func(c *scraper, p *page) {
			c.service(p, &svc)
			c.hedging(p, &svc)
			c.filters(p, &svc)
			c.caches(p, &svc)
		}, api)
	}
	want := func(f map[string]*dto.MetricFamily, name, labels string, want float64) {
		t.Helper()
		if got := value(f, prefix+name, labels); got != want {
			t.Errorf("%s{%s} is %v, want %v", name, labels, got, want)
		}
	}
	f := collect()
	for _, c := range all {
		want(f, c.name, c.labels, float64(*c.of))
	}
	want(f, "probe_waits_total", "result=enough,"+of, float64(1000-st.Probes.InVain))
	want(f, "streams_open", of, 2)
	want(f, "cache_bytes", of, 3)
	want(f, "breaker_state", of, 2)
	want(f, "endpoints_panic", of, 1)
	want(f, "endpoints", of, 3)
	want(f, "hedges_in_flight", of, 4)
	want(f, "correlated_stall_period_seconds", of, 90)
	want(f, "hedge_delay_seconds", "route=listener,"+of, 0.007)
	want(f, "hedge_delay_seconds", "route=routes[2],"+of, 0.008)
	want(f, "endpoints_unhealthy", of, -1) // without a check
	want(f, "requests_pending_limit", of, 1024)

	svc = stats.ServiceReport{Name: "compute", Endpoints: svc.Endpoints}
	f = collect()
	want(f, "endpoints_unhealthy", "service=compute", 2)
	for _, name := range []string{
		"breaker_state", "grpc_requests_total", "endpoints_passed_over_total", "faults_injected_total", "mirrored_total", "fallbacks_total",
		"cache_requests_total", "cache_responses_total", "cache_bytes",
	} {
		if f[prefix+name] != nil {
			t.Errorf("a service that has none of it has %s", name)
		}
	}
}

// TestSeriesOfEndpoint: each count of an endpoint is the value of its own series.
func TestSeriesOfEndpoint(t *testing.T) {
	api := newSidecar(t, twoServices).api
	e := stats.EndpointReport{
		Addr: "x", Connections: 1, Pending: 2, Latency: 3 * time.Second, Stalled: true, Unhealthy: true, Ejected: true, Others: 4.5, Reported: true, Ejections: 5,
	}
	const of = "endpoint=x,service=compute"
	all := []counted{
		{&e.Stats.Retries, "endpoint_retries_total", of},
		{&e.Stats.Hedges, "endpoint_hedges_total", of},
		{&e.Stats.BytesIn, "endpoint_bytes_total", "direction=in," + of},
		{&e.Stats.BytesOut, "endpoint_bytes_total", "direction=out," + of},
	}
	for o := range e.Stats.Outcomes {
		all = append(all, counted{&e.Stats.Outcomes[o], "endpoint_attempts_total", "endpoint=x,result=" + stats.AttemptOutcome(o).String() + ",service=compute"})
	}
	for i, c := range all {
		*c.of = uint64(100 + i)
	}
	svc := stats.ServiceReport{Name: "compute", Endpoints: []stats.EndpointReport{e, {Addr: "y"}}}
	f := collected(t, func(c *scraper, p *page) { c.endpoints(p, &svc) }, api)
	for _, c := range all {
		if got := value(f, prefix+c.name, c.labels); got != float64(*c.of) {
			t.Errorf("%s{%s} is %v, want %d", c.name, c.labels, got, *c.of)
		}
	}
	for name, want := range map[string][2]float64{ // of x and y
		"endpoint_connections": {1, 0}, "endpoint_pending": {2, 0}, "endpoint_latency_seconds": {3, 0}, "endpoint_stalled": {1, 0},
		"endpoint_healthy": {0, 1}, "endpoint_ejected": {1, 0}, "endpoint_reported": {4.5, -1}, "endpoint_ejections_total": {5, 0},
	} {
		got := [2]float64{value(f, prefix+name, of), value(f, prefix+name, "endpoint=y,service=compute")}
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	svc.Name = "empty" // has no check
	f = collected(t, func(c *scraper, p *page) { c.endpoints(p, &svc) }, api)
	if f[prefix+"endpoint_healthy"] != nil || f[prefix+"endpoint_ejected"] == nil {
		t.Error("an endpoint that nobody checks is healthy or not")
	}
}

// TestSeriesOfProcess: what the driver, TLS, tracing, the access log, reloads and the overlay count, is in series of its own.
func TestSeriesOfProcess(t *testing.T) {
	api := newSidecar(t, twoServices).api
	o := &api.opt
	o.Restarts = 3
	o.Reactor = func() stats.DriverStats {
		return stats.DriverStats{
			Accepted: 10, Refused: 11, RefusedSource: 12, AcceptErrors: 13, Dialled: 14, DialErrors: 15, Panics: 16, Detached: 17,
			Inbound: 18, Open: 20, Handshakes: 21, Resumed: 22, TLSFailures: map[string]int64{"tls_expired": 23},
		}
	}
	o.Tracing = func() otlp.Stats { return otlp.Stats{Exported: 30, Full: 31, Lost: 32} }
	o.AccessLog.Lines.Store(40)
	o.AccessLog.Overflow.Store(41)
	o.AccessLog.Lost.Store(42)
	o.AccessLog.Errors.Store(43)
	o.Reloads = func() ReloadStats {
		return ReloadStats{Since: time.UnixMilli(1700000000500), Outcomes: map[string]uint64{"applied": 50, "invalid": 51}}
	}
	o.Identities = func() []Identity {
		return []Identity{
			{Name: "a", Loads: 60, Failures: 61, Begins: time.Unix(62, 0), Expires: time.Unix(63, 0), Outdates: time.Unix(64, 0)}, {Name: "b", Loads: 65},
		}
	}
	revision := OverlayStats{Revision: 70, Refused: 71, Code: "invalid"}
	o.Overlay = func() OverlayStats { return revision }
	reports := []stats.WorkerReport{{Loop: stats.LoopStats{Connections: 80, Events: 81, Moved: 82}}}
	collect := func() map[string]*dto.MetricFamily {
		return collected(t, func(c *scraper, p *page) { c.collect(p, reports) }, api)
	}
	f := collect()
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"hot_restarts", "", 3}, {"engine_info", "engine=epoll", 1}, {"buffered_limit_bytes", "", 256 << 20}, {"admin_denied_total", "", 0},
		{"reactor_accepted_total", "", 10}, {"reactor_refused_total", "", 11}, {"reactor_refused_source_total", "", 12},
		{"reactor_accept_errors_total", "", 13}, {"reactor_dialed_total", "", 14}, {"reactor_dial_errors_total", "", 15},
		{"reactor_panics_total", "", 16}, {"reactor_detached_total", "", 17},
		{"reactor_connections", "direction=in", 18}, {"reactor_connections", "direction=out", 2},
		{"tls_handshakes_total", "", 21}, {"tls_resumed_total", "", 22}, {"tls_failures_total", "code=tls_expired", 23},
		{"tracing_spans_exported_total", "", 30}, {"tracing_spans_dropped_total", "reason=queue", 31}, {"tracing_spans_dropped_total", "reason=export", 32},
		{"access_log_lines_total", "", 40}, {"access_log_dropped_total", "reason=overflow", 41}, {"access_log_dropped_total", "reason=write", 42},
		{"access_log_errors_total", "", 43},
		{"config_generation", "", 1}, {"config_applied_timestamp_seconds", "", 1700000000.5},
		{"config_reloads_total", "outcome=applied", 50}, {"config_reloads_total", "outcome=invalid", 51},
		{"tls_certificate_loads_total", "identity=a", 60}, {"tls_certificate_load_failures_total", "identity=a", 61},
		{"tls_certificate_start_timestamp_seconds", "identity=a", 62}, {"tls_certificate_expiry_timestamp_seconds", "identity=a", 63},
		{"tls_crl_next_update_timestamp_seconds", "identity=a", 64}, {"tls_certificate_loads_total", "identity=b", 65},
		{"tls_certificate_load_failures_total", "identity=b", 0}, {"tls_certificate_start_timestamp_seconds", "identity=b", -1},
		{"tls_certificate_expiry_timestamp_seconds", "identity=b", -1}, {"tls_crl_next_update_timestamp_seconds", "identity=b", -1},
		{"fleet_revision", "", 70}, {"fleet_refused_revision", "", 71},
		{"loop_connections", "loop=0", 80}, {"loop_events_total", "loop=0", 81}, {"loop_moved_total", "loop=0", 82},
		{"endpoints_refused_total", "reason=loopback,source=etcd", 2},
	} {
		if got := value(f, prefix+c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	revision = OverlayStats{Revision: 72}
	o.Reactor = func() stats.DriverStats { return stats.DriverStats{Inbound: 2, Open: 1} } // of which one is counted a moment before the other
	f = collect()
	if refused, out := value(f, prefix+"fleet_refused_revision", ""), value(f, prefix+"reactor_connections", "direction=out"); refused != -1 || out != 0 {
		t.Errorf("without a refusal %v is refused; %v connections are dialled", refused, out)
	}
	o.Overlay, o.Sources = nil, func() []SourceStats { return nil }
	f = collect()
	for _, name := range []string{"fleet_revision", "fleet_refused_revision", "registry_connected", "source_up"} {
		if f[prefix+name] != nil {
			t.Errorf("without overlays and registries there is %s", name)
		}
	}
}

// TestSeriesOfRules: calls are counted by the rule that allows them, or as those that no rule allows.
func TestSeriesOfRules(t *testing.T) {
	s := newSidecar(t, `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes:
  - {match: {path: /a}, service: compute, allow: {rules: [{name: get, method: [GET]}]}}
  - {match: {path: /b}, service: compute, allow: {enforce: false, rules: [{name: put, method: [PUT]}]}}
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, connect_timeout: 15s, timeout: 2m}}
`)
	s.update("compute", newApp(t))
	for _, c := range []struct {
		method, path string
		times        int
	}{{"GET", "/a", 1}, {"POST", "/a", 2}, {"PUT", "/b", 3}, {"GET", "/b", 4}} {
		for range c.times {
			s.request(c.method, c.path)
		}
	}
	f := s.scrape()
	for labels, want := range map[string]float64{
		"rule=get,rules=routes.0,verdict=allowed": 1, "rule=none,rules=routes.0,verdict=refused": 2,
		"rule=put,rules=routes.1,verdict=allowed": 3, "rule=none,rules=routes.1,verdict=counted": 4,
	} {
		if got := value(f, "remora_allow_total", labels); got != want {
			t.Errorf("{%s} is %v, want %v", labels, got, want)
		}
	}
}

package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestStateOfEndpoints: the state of an endpoint is the worst of what loops and health checks say of it.
func TestStateOfEndpoints(t *testing.T) {
	const file = `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http%s}}
`
	const addr = "10.0.0.1:80"
	served := stats.EndpointStats{Hedges: 2, Outcomes: [stats.AttemptOutcomes]uint64{stats.AttemptServed: 3, stats.AttemptBroken: 1, stats.AttemptFailure: 4}}
	plain, checked := newSidecar(t, fmt.Sprintf(file, "")), newSidecar(t, fmt.Sprintf(file, ", check: {tcp: true}, lb: {subset: 1}"))
	for _, s := range []*sidecar{plain, checked} {
		s.update("compute", addr)
	}
	for _, c := range []struct {
		of   *sidecar
		is   stats.EndpointReport
		want string
	}{
		{plain, stats.EndpointReport{}, "idle"},
		{plain, stats.EndpointReport{Pending: 1}, "ok"},
		{plain, stats.EndpointReport{Stats: served, RecentGood: 1}, "ok"},
		{plain, stats.EndpointReport{Stalled: true}, "stalled"},
		{plain, stats.EndpointReport{Stalled: true, FailedInRow: 3}, "failing"},
		{plain, stats.EndpointReport{FailedInRow: 3, Ejected: true, EjectedBy: outlier.ByLatency}, "ejected"},
		{checked, stats.EndpointReport{}, "idle"},
	} {
		c.is.Addr = addr
		st := c.of.api.serviceState(&stats.ServiceReport{Name: "compute", Endpoints: []stats.EndpointReport{c.is}})
		if e := st.Endpoints[0]; e.State != c.want || e.Unused || (e.Healthy != nil) != (c.of == checked) || c.of == checked && !*e.Healthy {
			t.Errorf("%+v: %+v, want %s", c.is, e, c.want)
		}
	}
	if st := checked.api.serviceState(&stats.ServiceReport{Name: "compute"}); st.Endpoints[0].State != "unused" || !st.Endpoints[0].Unused {
		t.Errorf("an endpoint that no loop has: %+v", st.Endpoints[0])
	}
	if st := plain.api.serviceState(&stats.ServiceReport{Name: "compute"}); st.Endpoints[0].State != "idle" || st.Endpoints[0].Unused {
		t.Errorf("one without a subset: %+v", st.Endpoints[0])
	}
	st := plain.api.serviceState(&stats.ServiceReport{Name: "compute", Version: 9, Panics: true, Endpoints: []stats.EndpointReport{{
		Addr: addr, Pending: 1, Latency: 2500 * time.Microsecond, Stalled: true, Connections: 3, Reported: true, Others: 4.5, Ejected: true, EjectedBy: outlier.BySuccessRate, Stats: served,
	}}})
	text, err := json.Marshal(st.Endpoints)
	const want = `[{"address":"10.0.0.1:80","weight":1,"protocol":"http","pending":1,"latency_ms":2.5,"state":"ejected","stalled":true,` +
		`"ejected":"success_rate","connections":3,"reported":4.5,"attempts":8,"failed":5,"hedges":2}]`
	if err != nil || string(text) != want || st.Applied != 9 || !st.Panic {
		t.Errorf("%s\nwant %s\n%+v", text, want, st)
	}
	unhealthy := false
	for _, c := range []struct {
		is   EndpointState
		want string
	}{
		{EndpointState{Healthy: &unhealthy, Failing: true, Stalled: true, Unused: true}, "unhealthy"},
		{EndpointState{Healthy: &unhealthy, Ejected: "latency"}, "ejected"},
		{EndpointState{Stalled: true, Unused: true}, "stalled"},
		{EndpointState{Attempts: 1}, "ok"},
	} {
		if got := EndpointStates[c.is.Severity()]; got != c.want {
			t.Errorf("%+v is %s, want %s", c.is, got, c.want)
		}
	}
}

// TestWorstEndpoints: of many endpoints, /stats lists those with the worst states first, and of the others the first ones.
func TestWorstEndpoints(t *testing.T) {
	s := newSidecar(t, twoServices)
	var addrs []string
	for i := range maxEndpointSeries + 5 {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
	}
	s.update("compute", addrs...)
	last := addrs[len(addrs)-1]
	got := s.api.serviceStats(&stats.ServiceReport{Name: "compute", Endpoints: []stats.EndpointReport{{Addr: last, Stalled: true}}}).Endpoints
	sorted := s.proc.Snapshot("compute").Endpoints
	if len(got) != maxEndpointSeries || got[0].Address != last {
		t.Fatalf("%d are listed, the first is %s; want %s", len(got), got[0].Address, last)
	}
	at := 0
	for _, e := range got[1:] {
		if sorted[at].Addr == last {
			at++
		}
		if e.Address != sorted[at].Addr {
			t.Fatalf("%s is listed, want %s", e.Address, sorted[at].Addr)
		}
		at++
	}
}

// TestStatsOfService: each count of a service is in its own field of /stats.
func TestStatsOfService(t *testing.T) {
	s := newSidecar(t, twoServices)
	svc := stats.ServiceReport{Name: "compute", HedgesInFlight: 8}
	svc.Stats.BytesIn, svc.Stats.BytesOut, svc.Stats.Retries = 1, 2, 3
	svc.Stats.Hedges, svc.Stats.HedgesWon, svc.Stats.HedgesMissed = 7, 5, 6
	svc.Stats.Latency.Observe(3 * time.Second)
	svc.Stats.Outcomes = [stats.Outcomes]uint64{10, 11, 12, 13, 14, 15}
	got := s.api.serviceStats(&svc)
	if got.BytesIn != 1 || got.BytesOut != 2 || got.Retries != 3 || got.Latency != 3 || got.Requests() != 75 || sum(got.Counts) != 1 || got.PendingLimit != 1024 {
		t.Errorf("%+v", got)
	}
	if h := got.Hedges; h.Sent != 7 || h.Won != 5 || h.Missed != 6 || h.InFlight != 8 {
		t.Errorf("%+v", h)
	}
	reports := []stats.WorkerReport{{}, {}}
	for i := range reports {
		reports[i].Stats.Connections, reports[i].Loop.Connections, reports[i].Loop.Events = 1+i, 10+i, 100
		reports[i].Services = []stats.ServiceReport{{Name: "compute"}}
	}
	now := s.api.stats(reports).(*Stats)
	if now.Connections != 3 || now.Loops[0].Connections != 10 || now.Loops[1].Connections != 11 || now.Loops[1].Events != 100 || now.Try == "" {
		t.Errorf("%+v", now)
	}
	for name, count := range map[string]func(r *stats.WorkerReport){ // what a first request, or a stream, may be
		"a request":               func(r *stats.WorkerReport) { r.Services[0].Stats.Outcomes[stats.Outcome4xx] = 1 },
		"a stream":                func(r *stats.WorkerReport) { r.Services[0].Stats.Streams = 1 },
		"a stream that failed":    func(r *stats.WorkerReport) { r.Services[0].Stats.StreamsFailed = 1 },
		"one that has no service": func(r *stats.WorkerReport) { r.Stats.Unrouted = map[string]uint64{"egress": 1} },
	} {
		r := stats.WorkerReport{Services: []stats.ServiceReport{{Name: "compute"}}}
		if count(&r); s.api.stats([]stats.WorkerReport{r}).(*Stats).Try != "" {
			t.Errorf("after %s /stats says how to send the first request", name)
		}
	}
}

// TestSums: a sidecar reports the counts of its services, over all loops, to its fleet. If a loop is stuck, it reports none.
func TestSums(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	for range 6 {
		s.request("GET", "/")
	}
	sums, err := s.api.Sums(t.Context())
	if err != nil || len(sums) != 3 || sums["compute"].Outcomes[stats.Outcome2xx] != 6 || sums["empty"].Requests != 0 {
		t.Errorf("%+v, %v", sums, err)
	}
	s.api.loopTimeout = time.Millisecond
	release := make(chan struct{})
	defer close(release)
	s.proc.Workers()[1].Post(func() { <-release })
	if sums, err := s.api.Sums(t.Context()); sums != nil || err == nil {
		t.Errorf("with a stuck loop: %+v, %v", sums, err)
	}
}

// TestShowConfig: /config has the configuration, and says in comments since when, and what was refused.
func TestShowConfig(t *testing.T) {
	s := newSidecar(t, twoServices)
	since, refused := time.Unix(1700000000, 0).Format(time.RFC3339), time.Unix(1700000001, 0).Format(time.RFC3339)
	yaml, err := s.proc.Config().YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := "# generation 1, since " + since + "\n"
	const one = ":\n#   one\n#   two\n"
	check := func(head string) {
		t.Helper()
		resp := s.call(http.MethodGet, "/config")
		_, body := s.get("/config")
		if body != head+string(yaml) || resp.Header.Get("Content-Type") != "application/yaml" {
			t.Errorf("got\n%.300s\nwant\n%s", body, head)
		}
	}
	check(want + "# refused at " + refused + " (invalid)" + one +
		"# revision 3 of the overlay, since " + since + "\n# revision 4 refused (invalid):\n#   three\n#   four\n")
	s.api.opt.Overlay = func() OverlayStats { return OverlayStats{Revision: 5, Since: time.Unix(1700000000, 0)} }
	s.api.opt.Reloads = func() ReloadStats { return ReloadStats{Since: time.Unix(1700000000, 0)} }
	check(want + "# revision 5 of the overlay, since " + since + "\n")
	if st := s.api.configState(); st.Refused != nil || st.Revision != 5 {
		t.Errorf("%+v", st)
	}
	s.api.opt.Overlay = nil
	check(want)
	if st := s.api.configState(); st.Overlay != nil || st.Revision != 0 {
		t.Errorf("%+v", st)
	}
}

package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/panics"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestHistory: points have the rates of all requests, and the latency of those that did not fail.
func TestHistory(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	s.update("empty")
	s.api.history.addPoint(t.Context(), s.api)
	if h := decode[History](s, "/history"); len(h.At) != 0 {
		t.Errorf("after one reading: %+v", h)
	}
	for path, n := range map[string]int{"/": 4, "/500": 1, "/none": 2} {
		for range n {
			s.request("GET", path)
		}
	}
	s.api.history.addPoint(t.Context(), s.api)
	s.api.history.addPoint(t.Context(), s.api)
	all, compute := decode[History](s, "/history"), decode[History](s, "/history?service=compute")
	if len(all.At) != 2 || len(all.Requests) != 2 || len(compute.At) != 2 || all.At[1] <= all.At[0] {
		t.Fatalf("%+v and %+v", all, compute)
	}
	ratio := func(a, b float32) string { return fmt.Sprintf("%.3f", a/b) }
	// Of 7 requests 3 fail, and so do the copies of 2 of them that the route mirrors.
	if got := ratio(all.Failed[0], all.Requests[0]); got != "0.556" {
		t.Errorf("%s of all requests have failed: %+v", got, all)
	}
	if got := ratio(compute.Failed[0], compute.Requests[0]); got != "0.200" || compute.P50[0] <= 0 || compute.P999[0] < compute.P50[0] {
		t.Errorf("%s of the requests to compute have failed: %+v", got, compute)
	}
	if empty := decode[History](s, "/history?service=empty"); empty.Requests[0] <= 0 || empty.Requests[0] != empty.Failed[0] || empty.P99[0] != noPoint {
		t.Errorf("of the service without endpoints: %+v", empty)
	}
	if all.Requests[1] != 0 || all.P50[1] != noPoint {
		t.Errorf("in a time without requests: %+v", all)
	}
	if status, _ := s.get("/history?service=nobody"); status != http.StatusNotFound {
		t.Errorf("of an unknown service: %d", status)
	}
}

// TestUnroutedHistory: requests without a route are among all, and have failed.
func TestUnroutedHistory(t *testing.T) {
	s := newSidecar(t, `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [{match: {path: /app}, service: app}]
services: {app: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}
`)
	s.api.history.addPoint(t.Context(), s.api)
	for range 2 {
		s.request("GET", "/other")
	}
	s.api.history.addPoint(t.Context(), s.api)
	if unrouted := s.api.history.unrouted; unrouted != 2 {
		t.Errorf("%d unrouted", unrouted)
	}
	if h := decode[History](s, "/history"); len(h.Requests) != 1 || h.Requests[0] <= 0 || h.Requests[0] != h.Failed[0] {
		t.Errorf("%+v", h)
	}
}

// TestOneLoop: one loop has the reports of all.
func TestOneLoop(t *testing.T) {
	s := newSidecarOf(t, twoServices, 1)
	s.api.history.addPoint(t.Context(), s.api)
	s.request("GET", "/none")
	s.api.history.addPoint(t.Context(), s.api)
	if h := decode[History](s, "/history"); len(h.Requests) != 1 || h.Requests[0] <= 0 {
		t.Errorf("history: %+v", h)
	}
	if got := decode[Stats](s, "/stats"); len(got.Loops) != 1 {
		t.Errorf("%d loops", len(got.Loops))
	}
	if ms := decode[Milliseconds](s, "/milliseconds"); len(ms.Arrivals) != int(ms.End-ms.From) {
		t.Errorf("milliseconds: %+v", ms)
	}
	if status, body := s.get("/metrics"); status != http.StatusOK || !strings.Contains(body, "\nremora_loops 1\n") {
		t.Errorf("metrics: %d", status)
	}
}

// TestHistoryBounds: the history has ten minutes, and a bounded number of services.
func TestHistoryBounds(t *testing.T) {
	var h history
	services := make([]stats.ServiceReport, historyServices+5)
	for i := range services {
		services[i].Name = fmt.Sprintf("s%03d", i)
	}
	for i := range historyPoints + 30 {
		services[0].Stats.Requests++
		services[0].Stats.Outcomes[stats.Outcome2xx]++
		services[0].Stats.Latency.Observe(15 * time.Millisecond)
		services[0].Stats.Hedges += 4
		services[0].Stats.HedgesMissed++
		services[1].Stats.HedgesWon += 2
		h.add(float64(5*i), services, uint64(2*i))
	}
	all, ok := h.of(allServices)
	if !ok || len(all.At) != historyPoints || all.At[historyPoints-1] != 5*(historyPoints+29) || all.Requests[7] != 0.6 || all.Failed[7] != 0.4 {
		t.Errorf("%t, %+v", ok, all)
	}
	if all.P50[7] < 0.010 || all.P50[7] > 0.020 {
		t.Errorf("half of all requests take %v s", all.P50[7])
	}
	if all.Sent[7] != 0.6 || all.Won[7] != 0.4 {
		t.Errorf("%v hedges were sent in a second, %v have won", all.Sent[7], all.Won[7])
	}
	if one, _ := h.of("s000"); len(one.Requests) != historyPoints || one.Requests[9] != 0.2 || one.P50[9] < 0.010 || one.P50[9] > 0.020 {
		t.Errorf("%+v", one)
	}
	if len(h.series) != historyServices+1 || len(h.at) != historyPoints+1 || cap(h.at) > 3*historyPoints {
		t.Errorf("%d services, %d points", len(h.series), len(h.at))
	}
	if _, ok := h.of(fmt.Sprintf("s%03d", historyServices)); ok {
		t.Error("a service beyond the bound has a history")
	}
	// A reload removes one service, replaces one, and adds one.
	services = services[:3]
	services[0].Stats = stats.ServiceStats{}
	services[0].Stats.Outcomes[stats.OutcomeFailed] = 10
	services[2].Name = "t"
	h.add(5*(historyPoints+30), services, 2*(historyPoints+29))
	last := historyPoints - 1
	if one, _ := h.of("s000"); one.Requests[last] != 2 || one.Failed[last] != 2 || one.P50[last] != noPoint {
		t.Errorf("of a service that was replaced: %v %v %v", one.Requests[last], one.Failed[last], one.P50[last])
	}
	if one, ok := h.of("t"); !ok || len(one.Requests) != historyPoints || one.Requests[last-1] != noPoint || one.Requests[last] != 0 {
		t.Errorf("of a new service: %t %v", ok, one.Requests)
	}
	if _, ok := h.of("s002"); ok {
		t.Error("a service that was removed has a history")
	}
}

// TestInterpolated: a quantile is within its bucket. What is longer than all bounds counts as the last one.
func TestInterpolated(t *testing.T) {
	const last = stats.HistogramBuckets - 1
	bound := func(i int) float64 { return stats.HistogramBound(i).Seconds() }
	for _, c := range []struct {
		counts map[int]uint64 // by bucket
		q      float64
		want   float64
	}{
		{nil, .5, noPoint},
		{map[int]uint64{0: 2}, .5, bound(0) / 2},
		{map[int]uint64{1: 2}, .5, (bound(0) + bound(1)) / 2},
		{map[int]uint64{3: 4}, .25, bound(2) + (bound(3)-bound(2))/4},
		{map[int]uint64{3: 1, 5: 2}, .5, bound(4) + (bound(5)-bound(4))/4},
		{map[int]uint64{3: 1, 5: 1}, .5, bound(3)},
		{map[int]uint64{3: 1, last: 1}, .99, bound(last - 1)},
		{map[int]uint64{last - 1: 1}, .5, (bound(last-2) + bound(last-1)) / 2},
	} {
		var h stats.Histogram
		for i, n := range c.counts {
			h.Counts[i] = n
		}
		if got := float64(interpolated(&h, c.q)); math.Abs(got-c.want) > 1e-6*math.Abs(c.want) {
			t.Errorf("%v: the quantile %v is %v, want %v", c.counts, c.q, got, c.want)
		}
	}
}

// TestHistoryReplaced: a service that a reload has replaced counts from 0, also if it has had more requests than the one before.
func TestHistoryReplaced(t *testing.T) {
	var h history
	services := make([]stats.ServiceReport, 1)
	services[0].Name = "app"
	of := func(requests uint64, outcome stats.Outcome, latency time.Duration) stats.ServiceStats {
		s := stats.ServiceStats{Requests: requests}
		s.Outcomes[outcome] = requests
		for range requests {
			s.Latency.Observe(latency)
		}
		return s
	}
	for i, s := range []stats.ServiceStats{
		of(5, stats.Outcome2xx, 15*time.Millisecond), of(10, stats.Outcome2xx, 15*time.Millisecond), of(20, stats.OutcomeFailed, time.Second),
	} {
		services[0].Stats = s
		h.add(float64(5*i), services, 0)
	}
	one, ok := h.of("app")
	if !ok || len(one.Requests) != 2 || one.Requests[1] != 4 || one.Failed[1] != 4 || one.P50[1] < .9 || one.P50[1] > 1 {
		t.Errorf("%t, %+v", ok, one)
	}
}

// TestPointSince: a point has the latencies, outcomes, and hedges since the one before.
func TestPointSince(t *testing.T) {
	var now stats.ServiceStats
	now.Requests, now.Hedges, now.HedgesMissed, now.HedgesWon = 3, 7, 2, 3
	now.Outcomes[stats.Outcome2xx], now.Outcomes[stats.OutcomeFailed] = 2, 1
	now.Latency.Observe(time.Second)
	now.Latency.Observe(time.Second)
	was := now
	now.Requests, now.Hedges, now.HedgesMissed, now.HedgesWon = 9, 17, 5, 7
	now.Outcomes[stats.Outcome2xx], now.Outcomes[stats.OutcomeFailed] = 6, 3
	now.Latency.Observe(time.Millisecond)
	var p point
	p.since(&now, was)
	var latency stats.Histogram
	latency.Observe(time.Millisecond)
	latency.Sum = 0 // a point needs only the counts
	if want := (point{requests: 6, failed: 2, sent: 7, won: 4, latency: latency}); p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
}

// TestHistoryAtRest: when no loop had a turn, a point needs no reports, and says that nothing happened.
func TestHistoryAtRest(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	h := &s.api.history
	h.addPoint(t.Context(), s.api)
	s.request("GET", "/")
	h.addPoint(t.Context(), s.api)
	unchanged := func() bool { // at a point
		h.last["compute"] = stats.ServiceStats{Requests: 1 << 40}
		h.addPoint(t.Context(), s.api)
		return h.last["compute"].Requests == 1<<40
	}
	for end := time.Now().Add(waitLimit); !unchanged(); {
		if time.Now().After(end) {
			t.Fatal("each point has reports")
		}
	}
	for _, path := range []string{"/history", "/history?service=compute"} {
		points := decode[History](s, path)
		last := len(points.At) - 1
		for _, list := range points.lists() {
			if len(*list) != last+1 {
				t.Fatalf("%d values at %d points", len(*list), last+1)
			}
		}
		if points.Requests[0] <= 0 || points.Requests[last] != 0 || points.Failed[last] != 0 || points.P99[last] != noPoint || points.At[last] <= points.At[last-1] {
			t.Errorf("%s: %+v", path, points)
		}
	}
	s.request("GET", "/")
	if unchanged() {
		t.Error("a point after a request has no reports")
	}
}

// TestFirstRequest: a sidecar without traffic says how to send some.
func TestFirstRequest(t *testing.T) {
	const services = "\nservices: {app: {discover: static, endpoints: [\"10.0.0.1:1\"], protocol: http}, " +
		"raw: {discover: static, endpoints: [\"10.0.0.1:1\"], protocol: tcp}, calls: {discover: static, endpoints: [\"10.0.0.1:1\"], protocol: dubbo}}"
	for yaml, want := range map[string]string{
		`listeners: [{name: a, address: "127.0.0.1:15001", protocol: http, service: app}]`:                                                                                                   "curl -i http://127.0.0.1:15001/",
		`listeners: [{name: a, address: "0.0.0.0:15001", protocol: http}]` + "\nroutes: [{match: {host: app, path: /v1}, service: app}]":                                                     "curl -i -H 'Host: app' 'http://127.0.0.1:15001/v1'",
		`listeners: [{name: a, address: "127.0.0.1:15001", protocol: http}]` + "\nroutes: [{match: {header: {x: y}}, service: app}, {match: {host: '*.app'}, service: app}, {service: app}]": "curl -i 'http://127.0.0.1:15001/'",
		`listeners: [{name: a, address: "unix:/run/a", protocol: http, service: app}, {name: b, address: "127.0.0.1:15002", protocol: http, service: app}]`:                                  "curl -i http://127.0.0.1:15002/",
		`listeners: [{name: a, address: "[::1]:15001", protocol: http}]` + "\nroutes: [{service: app}]":                                                                                      "curl -i 'http://[::1]:15001/'",
		`listeners: [{name: a, address: "127.0.0.1:15001", protocol: tcp, service: raw}]`:                                                                                                    "",
		`listeners: [{name: a, address: "127.0.0.1:0", protocol: http, service: app}]`:                                                                                                       "",
		`listeners: [{name: a, address: "[::]:1", protocol: http, service: app, tls: {cert: c, key: k}}]`:                                                                                    "curl -i https://127.0.0.1:1/",
		`listeners: [{name: a, address: "127.0.0.1:1", protocol: http}]` + "\nroutes: [{match: {path: \"/a'b\"}, service: app}, {match: {prefix_text: /p}, service: app}]":                   "curl -i 'http://127.0.0.1:1/p'",
		`listeners: [{name: a, address: "127.0.0.1:1", protocol: http}]` + "\nroutes: [{match: {service: x}, service: calls}, {match: {header: {x: y}}, service: app}]":                      "",
	} {
		cfg, err := config.Parse("test.yaml", []byte(yaml+services), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		if got := firstRequest(cfg); got != want {
			t.Errorf("%s: %q, want %q", yaml, got, want)
		}
	}
	s := newSidecar(t, twoServices)
	if got := decode[Stats](s, "/stats").Try; got != "curl -i -H 'Host: hedged' 'http://127.0.0.1:15001/'" {
		t.Errorf("before the first request: %q", got)
	}
	s.request("GET", "/none")
	if got := decode[Stats](s, "/stats").Try; got != "" {
		t.Errorf("after it: %q", got)
	}
}

// TestStatsSources: /stats has the configuration, its last refusal, the overlay, and the sources of endpoints.
func TestStatsSources(t *testing.T) {
	s := newSidecar(t, twoServices)
	now := decode[Stats](s, "/stats")
	if c := now.Config; c.Generation != 1 || c.Reloads["applied"] != 1 || c.Refused == nil || c.Refused.Code != "invalid" || !now.Registry.Connected {
		t.Errorf("%+v, registry %+v", c, now.Registry)
	}
	if o := now.Config.Overlay; o == nil || o.Revision != 3 || o.Refused != 4 || o.Code != "invalid" || o.Reason != "three\nfour" {
		t.Errorf("overlay %+v", o)
	}
	if len(now.Sources) != 2 || now.Sources[0].Name != "etcd" || !now.Sources[0].Up || now.Sources[1].Code != "unresolved" || now.Sources[1].Kept != 3 {
		t.Errorf("sources %+v", now.Sources)
	}
}

// TestMillisecondsOfService: a service counts its own milliseconds while somebody asks for them.
func TestMillisecondsOfService(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	first := decode[Milliseconds](s, "/milliseconds?service=compute")
	s.request("GET", "/")
	s.request("GET", "/none") // of another service
	total := func(service string, since int64) (n uint32) {
		for _, k := range decode[Milliseconds](s, fmt.Sprintf("/milliseconds?service=%s&since=%d", service, since)).Arrivals {
			n += k
		}
		return n
	}
	// The millisecond of a request is over soon.
	for end := time.Now().Add(waitLimit); total("", first.End) < 2; {
		if time.Now().After(end) {
			t.Fatal("the requests are in no millisecond")
		}
	}
	for service, want := range map[string]uint32{"compute": 1, "nobody": 0} {
		if got := total(service, first.From); got != want {
			t.Errorf("%d requests of %s, want %d", got, service, want)
		}
	}
}

// TestMillisecondsOfMany: at most four services are watched at a time. Those of one more are refused.
func TestMillisecondsOfMany(t *testing.T) {
	services := ""
	for i := range 5 {
		services += fmt.Sprintf("  s%d: {discover: static, endpoints: [\"10.0.9.9:1\"]}\n", i)
	}
	s := newSidecar(t, "listeners: [{name: egress, address: \"127.0.0.1:15001\", protocol: http, service: s0}]\nservices:\n"+services)
	for i := range 4 {
		decode[Milliseconds](s, fmt.Sprintf("/milliseconds?service=s%d", i))
	}
	const want = "the milliseconds of 4 other services are being watched\n"
	if status, body := s.get("/milliseconds?service=s4"); status != http.StatusServiceUnavailable || body != want {
		t.Errorf("one more: %d %s", status, body)
	}
	decode[Milliseconds](s, "/milliseconds?service=s3")
	decode[Milliseconds](s, "/milliseconds")
}

// TestListenerErrorsFormat: programs find the errors of each listener.
func TestListenerErrorsFormat(t *testing.T) {
	var a, b stats.WorkerReport
	a.Stats.Errors = map[stats.ErrorKey]uint64{{Listener: "x", Code: "no-route"}: 2}
	a.Stats.Unrouted = map[string]uint64{"x": 2}
	b.Stats.Errors = map[stats.ErrorKey]uint64{{Listener: "x", Code: "no-route"}: 1, {Listener: "y", Code: "deadline"}: 4}
	text, err := json.Marshal(listenerErrors([]stats.WorkerReport{a, b}))
	if want := `{"x":{"errors":{"no-route":3},"unrouted":2},"y":{"errors":{"deadline":4},"unrouted":0}}`; err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestHistoryPanic: a panic ends one point, and not the process.
func TestHistoryPanic(t *testing.T) {
	s := &Server{opt: Options{Panics: panics.NewCounter(slog.New(slog.DiscardHandler))}} // without a Process
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.history.record(ctx, s)
	if n := s.opt.Panics.Count(); n != 1 {
		t.Errorf("%d panics count, want 1", n)
	}
}

// gate is a handler of logs that waits for the test.
type gate struct {
	slog.Handler
	entered, open chan struct{}
}

func (gate) Enabled(context.Context, slog.Level) bool { return true }

func (g gate) Handle(context.Context, slog.Record) error {
	close(g.entered)
	<-g.open
	return nil
}

// TestCloseWaits: after Close nothing is recorded any more, as Close waits for what is.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
		s := &Server{opt: Options{Panics: panics.NewCounter(slog.New(g))}} // without a Process a point panics, which is logged
		s.Start()
		<-g.entered
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("Close has not waited")
		}
		close(g.open)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// TestQuietHistoryBounds: points at which nothing has happened count against historyPoints as others do.
func TestQuietHistoryBounds(t *testing.T) {
	var h history
	if h.addQuiet(0) {
		t.Error("there is a point before the first")
	}
	for i := range 2 {
		h.add(float64(5*i), nil, 0)
	}
	for i := range historyPoints + 30 {
		if !h.addQuiet(float64(10 + 5*i)) {
			t.Error("there is no point")
		}
	}
	for name, s := range h.series {
		if last := len(s.Requests) - 1; s.Requests[last] != 0 || s.Failed[last] != 0 {
			t.Errorf("series %q: %+v", name, s)
		}
	}
	const last = 10 + 5*(historyPoints+29)
	all, ok := h.of(allServices)
	if !ok || len(all.At) != historyPoints || all.At[historyPoints-1] != last || len(all.Requests) != historyPoints || all.Requests[7] != 0 || all.P50[7] != noPoint {
		t.Errorf("%t, %+v", ok, all)
	}
}

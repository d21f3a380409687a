package admin

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	best "github.com/remora-proxy/remora/proxy/hedge/choice"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

const threeModes = `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes:
  - {match: {host: hedged}, service: compute, hedge: {mode: on, delay: 3ms}}
  - {service: compute}
services:
  compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, connect_timeout: 15s, timeout: 2m,
            hedge: {mode: shadow, sample: 1, min_delay: 3ms, max_delay: 5ms}}
  unused: {discover: static, endpoints: ["10.0.9.9:1"]}
`

// TestHedgingFormat: the names and the order of the fields of /hedging, on which scripts
// depend.
func TestHedgingFormat(t *testing.T) {
	s := newSidecar(t, threeModes)
	const (
		counts = `"requests":0,"hedges":0,"missed":0,"won":0,"extra_load":0,"gates":{"budget":0,"cascade":0,` +
			`"concurrency":0,"correlated":0,"deadline":0,"no_endpoint":0,"not_idempotent":0,"periodic":0,"useless":0}`
		none    = `{"samples":0,"p50_ms":null,"p97_ms":null,"p99_ms":null,"p999_ms":null}`
		latency = `"win_rate":null,"latency":` + none
		effect  = `"effect":{"with":` + none + `,"without":` + none + `,"one_in":1}`
		verdict = `"verdict":"toofewrequeststhatmaybehedgedtosayyet",`
		unknown = `"p99_ms":null,"p999_ms":null,"extra_load":0}`
		want    = `{"cancels":0,"cancels_saved":0,"services":{` +
			`"compute":{"mode":"on",` + verdict + counts + `,"retries":0,"in_flight":0,"tokens":10,` +
			`"delay_ms":{"routes[0]":3,"routes[1]":5},"routes":[` +
			`{"route":"routes[0]","mode":"on",` + verdict + `"delay_ms":3,` + latency + `,` + effect + `,` + counts + `},` +
			`{"route":"routes[1]","mode":"shadow",` + verdict + `"delay_ms":5,` + latency + `,"watched":` + none + `,"shadow":[` +
			`{"delay_ms":5,"current":true,` + unknown + `,{"delay_ms":3,"current":false,` + unknown + `,` +
			`{"delay_ms":5,"current":false,` + unknown + `],` + counts + `}]},` +
			`"unused":{"mode":"shadow",` + counts + `,"retries":0,"in_flight":0,"tokens":10,"delay_ms":{},"routes":[]}}}`
	)
	_, body := s.get("/hedging")
	if got := strings.NewReplacer(" ", "", "\n", "").Replace(body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestHedgingCounts(t *testing.T) {
	s := newSidecar(t, strings.Replace(threeModes, "min_delay: 3ms, max_delay: 5ms", "min_delay: 1m, max_delay: 1m", 1)) // no request is late
	s.update("compute", newApp(t), newApp(t))
	for range 3 {
		s.request("GET", "/")
	}
	_, body := s.get("/hedging")
	var got hedgingBody
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	svc := got.Services["compute"]
	shadow := svc.Routes[1]
	if svc.Requests != 3 || shadow.Requests != 3 || svc.Routes[0].Requests != 0 ||
		shadow.Latency.Samples != 3 || shadow.Latency.P99 == nil || *shadow.Latency.P99 <= 0 {
		t.Errorf("%s", body)
	}
	if is, want := *shadow.Watched, shadow.Latency; is.Samples != 3 || math.Abs(*is.P99-*want.P99) > *want.P99/16 {
		t.Errorf("%d requests of %v ms are watched, want 3 as slow as all: %s", is.Samples, *is.P99, body)
	}
	for _, f := range shadow.Shadow {
		if f.P99 == nil || *f.P99 != *shadow.Watched.P99 {
			t.Errorf("a gain is forecast for quick requests: %s", body)
		}
	}
}

// TestMergeRoutes: counts and distributions of loops are added, and the longest delay is
// shown.
func TestMergeRoutes(t *testing.T) {
	report := func(delay time.Duration, classes []hedge.ClassReport, latencies ...time.Duration) stats.WorkerReport {
		r := hedge.NewRoute(hedge.Policy{Mode: hedge.Shadow, Delay: delay, Quantile: .97, MaxDelay: delay}, 1)
		for _, d := range latencies {
			r.Latencies.Observe(d, d, 0)
			r.Shadow.End(d, &hedge.Watch{Watch: forecast.Watch{Watched: true}}, false)
		}
		forecasts, watched := r.Shadow.Forecasts(1, 64)
		return stats.WorkerReport{Services: []stats.ServiceReport{{Name: "a", Tokens: 2, Routes: []stats.RouteReport{{
			Classes: classes,
			Delay:   delay, Counts: hedge.Counts{Primaries: 10, Hedges: 3, HedgesMissed: 1, HedgesWon: 1},
			Latency: r.Latencies.Primaries.Distribution(0), Watched: watched, Forecasts: forecasts,
		}}}}}
	}
	svc := merge([]stats.WorkerReport{
		report(3*time.Millisecond, []hedge.ClassReport{
			{Name: "a", Samples: 5, Delay: 2 * time.Millisecond, Median: time.Millisecond, Merged: true},
			{Name: "b", Samples: 1}}, 1*time.Millisecond),
		report(4*time.Millisecond, []hedge.ClassReport{
			{Name: "c", Samples: 2, Merged: true},
			{Name: "a", Samples: 6, Delay: 3 * time.Millisecond, Median: time.Millisecond}}, 9*time.Millisecond)})[0]
	got := routeState(&svc.Routes[0])
	if svc.Tokens != 4 || got.DelayMS != 4 || got.Requests != 20 || got.Hedges != 6 || got.Missed != 2 || got.Won != 2 ||
		got.ExtraLoad != .2 || *got.WinRate != .5 || got.Latency.Samples != 2 || *got.Latency.P50 > 1.1 || *got.Latency.P99 < 8.9 ||
		!slices.Equal(got.Classes, []class{{"a", 11, 3, 1, false}, {"b", 1, 0, 0, false}, {"c", 2, 0, 0, true}}) ||
		got.Shadow[0].DelayMS != 4 || got.Watched.Samples != 2 || *got.Shadow[0].P99 < 8.8 {
		t.Errorf("%+v", got)
	}
}

// TestPeriodicReport: of the loops, the one that has seen the most stalls of a period is shown.
func TestPeriodicReport(t *testing.T) {
	s := newSidecar(t, threeModes).api
	loop := func(p periodic.Period, at time.Time) stats.WorkerReport {
		return stats.WorkerReport{Services: []stats.ServiceReport{{Name: "compute", Stalls: p, StalledAt: at}}}
	}
	at := time.Date(2026, 3, 29, 12, 5, 3, 0, time.UTC)
	svc := merge([]stats.WorkerReport{
		loop(periodic.Period{}, time.Time{}),
		loop(periodic.Period{Every: time.Minute, Length: 900 * time.Millisecond, Seen: 6}, at),
		loop(periodic.Period{Every: 2 * time.Minute, Length: time.Second, Seen: 5}, at),
		loop(periodic.Period{Every: 3 * time.Minute, Length: time.Second, Seen: 6}, at),
	})[0]
	const line = "the replicas of compute stall together every 60 s at second 3 for 0.9 s"
	got, err := json.Marshal(s.hedgingState(&svc).Periodic)
	if want := `{"period_seconds":60,"duration_seconds":0.9,"second":3,"seen":6,"summary":"` + line + `"}`; err != nil || string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.serviceStats(&svc).Hedges.Periodic; got != line {
		t.Errorf("/stats says %q", got)
	}
	none := merge([]stats.WorkerReport{loop(periodic.Period{}, time.Time{})})[0]
	if st := s.hedgingState(&none); st.Periodic != nil || s.serviceStats(&none).Hedges.Periodic != "" {
		t.Errorf("without a period: %+v", st.Periodic)
	}
}

// TestVerdict: the verdict on a service is about its routes where hedging is on or, if there are none, about those in
// shadow mode.
func TestVerdict(t *testing.T) {
	const requests = 5000
	var same histogram.Distribution // with and without hedges
	same.Counts[7] = requests
	route := func(mode hedge.Mode, hedges uint64) stats.RouteReport {
		r := stats.RouteReport{Mode: mode}
		switch mode {
		case hedge.On:
			r.Effect = &hedge.Effect{Mode: mode, Without: same, With: same, Hedges: hedges, Requests: requests}
		case hedge.Shadow:
			r.Watched = same
			r.Forecasts = []forecast.Forecast{{Latency: same, Hedges: hedges, Requests: requests}, {}}
		}
		return r
	}
	off := route(hedge.Off, 0)
	for _, c := range []struct {
		routes []stats.RouteReport
		want   string
	}{
		{nil, ""},
		{[]stats.RouteReport{off}, ""},
		{[]stats.RouteReport{{Mode: hedge.Shadow, Watched: same, Forecasts: []forecast.Forecast{{Latency: same, Hedges: 50, Requests: requests}}}},
			"hedging would bring nothing here: 1.0% extra load saved"}, // all that /stats asks for
		{[]stats.RouteReport{off, route(hedge.On, 50), off}, "hedging brings nothing here: 1.0% extra load"},
		{[]stats.RouteReport{route(hedge.On, 50), route(hedge.On, 150)}, "hedging brings nothing here: 2.0% extra load"},
		{[]stats.RouteReport{route(hedge.On, 50), route(hedge.Shadow, 150)}, "hedging brings nothing here: 1.0% extra load"},
		{[]stats.RouteReport{route(hedge.Shadow, 150), route(hedge.On, 50)}, "hedging brings nothing here: 1.0% extra load"},
		{[]stats.RouteReport{route(hedge.Shadow, 50), route(hedge.Shadow, 150)}, "hedging would bring nothing here: 2.0% extra load saved"},
	} {
		for range 2 { // the first does not change the reports
			if got := verdict(&stats.ServiceReport{Routes: c.routes}); got != c.want {
				t.Errorf("%d routes: %q, want %q", len(c.routes), got, c.want)
			}
		}
	}
}

// TestHedgingState: the counts of a service are its own, and its mode is that of its only route. A single hedge has a rate, too.
func TestHedgingState(t *testing.T) {
	s := newSidecar(t, threeModes).api
	svc := stats.ServiceReport{Name: "compute", Routes: []stats.RouteReport{{Mode: hedge.On, Delay: 2500 * time.Microsecond, Counts: hedge.Counts{Primaries: 1, Hedges: 1, HedgesWon: 1}}}}
	svc.Stats.Requests, svc.Stats.Retries, svc.HedgesInFlight, svc.Tokens = 5, 6, 7, 8.5
	svc.Stats.Primaries, svc.Stats.Hedges, svc.Stats.HedgesMissed, svc.Stats.HedgesWon = 10, 4, 3, 2
	st := s.hedgingState(&svc)
	if st.Mode != "on" || st.Requests != 5 || st.Retries != 6 || st.InFlight != 7 || st.Tokens != 8.5 || st.Hedges != 4 || st.Missed != 3 || st.Won != 2 ||
		st.ExtraLoad != 0.1 || st.DelayMS["routes[0]"] != 2.5 {
		t.Errorf("%+v", st)
	}
	if r := st.Routes[0]; r.Route != "routes[0]" || r.ExtraLoad != 1 || r.WinRate == nil || *r.WinRate != 1 || r.Effect != nil || r.Watched != nil {
		t.Errorf("%+v", r)
	}
	svc.Routes[0].Counts.HedgesMissed = 1
	if r := s.hedgingState(&svc).Routes[0]; r.WinRate != nil || r.ExtraLoad != 0 {
		t.Errorf("the only hedge reached no application: %+v", r)
	}
	loops := []stats.WorkerReport{
		{Stats: stats.WorkerStats{Cancels: 1, CancelsSaved: 2}, Services: []stats.ServiceReport{svc}}, {Stats: stats.WorkerStats{Cancels: 10, CancelsSaved: 20}},
	}
	if body := s.hedging(loops).(*hedgingBody); body.Cancels != 11 || body.CancelsSaved != 22 || len(body.Services) != 1 {
		t.Errorf("%+v", body)
	}
}

// TestChoice: the choice of a service is that of the busiest of the routes whose mode is the strongest.
func TestChoice(t *testing.T) {
	route := func(mode hedge.Mode, primaries uint64, delay time.Duration) stats.RouteReport {
		return stats.RouteReport{Mode: mode, Counts: hedge.Counts{Primaries: primaries}, Choice: best.Choice{Delay: delay * time.Millisecond, Share: 1}}
	}
	for _, c := range []struct {
		routes []stats.RouteReport
		want   string // begin of the text
	}{
		{nil, ""},
		{[]stats.RouteReport{route(hedge.On, 5, 10), route(hedge.On, 7, 20)}, "hedges only after 20 ms:"},
		{[]stats.RouteReport{route(hedge.On, 7, 10), route(hedge.On, 5, 20)}, "hedges only after 10 ms:"},
		{[]stats.RouteReport{route(hedge.On, 5, 10), route(hedge.On, 5, 20)}, "hedges only after 10 ms:"},
		{[]stats.RouteReport{route(hedge.Shadow, 7, 10), route(hedge.On, 5, 20)}, "hedges only after 20 ms:"},
		{[]stats.RouteReport{route(hedge.On, 5, 20), route(hedge.Shadow, 7, 10)}, "hedges only after 20 ms:"},
		{[]stats.RouteReport{route(hedge.Shadow, 5, 20)}, "would hedge only after 20 ms:"},
	} {
		got, _, _ := strings.Cut(choice(&stats.ServiceReport{Routes: c.routes}), " no delay")
		if got != c.want {
			t.Errorf("%d routes: %q, want %q", len(c.routes), got, c.want)
		}
	}
}

// TestMergeEffects: effects of loops are added, and the choice with the longest delay is shown.
func TestMergeEffects(t *testing.T) {
	report := func(n uint64, delay time.Duration) stats.WorkerReport {
		return stats.WorkerReport{Services: []stats.ServiceReport{{Name: "a", Routes: []stats.RouteReport{{
			Mode: hedge.On, Choice: best.Choice{Delay: delay}, Effect: &hedge.Effect{Mode: hedge.On, Hedges: n, Requests: 2 * n},
		}}}}}
	}
	equal := []stats.WorkerReport{report(1, 4), report(2, 4)}
	equal[0].Services[0].Routes[0].Choice.Share = 0.5
	if got := merge(equal)[0].Routes[0].Choice; got.Share != 0.5 {
		t.Errorf("of equal delays the choice of another loop is shown: %+v", got)
	}
	for _, delays := range [][2]time.Duration{{3, 4}, {4, 3}} {
		got := merge([]stats.WorkerReport{report(1, delays[0]), report(10, delays[1])})[0].Routes[0]
		if got.Effect.Hedges != 11 || got.Effect.Requests != 22 || got.Choice.Delay != 4 {
			t.Errorf("delays %v: %+v, choice %+v", delays, got.Effect, got.Choice)
		}
	}
}

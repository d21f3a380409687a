package admin

import (
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// hedgingBody is the response of /hedging.
type hedgingBody struct {
	Cancels      uint64                  `json:"cancels"`       // attempts cancelled over links
	CancelsSaved uint64                  `json:"cancels_saved"` // of these, dropped before the application received them
	Services     map[string]hedgingState `json:"services"`
}

type hedgingState struct {
	Mode    string `json:"mode"`              // the strongest mode of the routes to the service
	Verdict string `json:"verdict,omitempty"` // what hedging brings, or would bring
	Choice  string `json:"choice,omitempty"`  // which delay the busiest of these routes has, and why
	hedgingCounts
	Retries  uint64             `json:"retries"`
	InFlight int                `json:"in_flight"`
	Tokens   float64            `json:"tokens"`   // hedges and paid retries that the budget allows now; below 0: owed
	DelayMS  map[string]float64 `json:"delay_ms"` // by route
	Periodic *stallPeriod       `json:"periodic,omitempty"`
	Routes   []routeHedging     `json:"routes"`
}

// stallPeriod is a period in which the replicas stall together.
type stallPeriod struct {
	Every   float64 `json:"period_seconds"`
	Length  float64 `json:"duration_seconds"` // of a stall
	Second  *int    `json:"second"`           // at which it begins, see docs/hedging.md; null if it is none
	Seen    int     `json:"seen"`             // stalls, at most 64
	Summary string  `json:"summary"`
}

// hedgingCounts are counts since the start.
type hedgingCounts struct {
	Requests  uint64            `json:"requests"`
	Hedges    uint64            `json:"hedges"`
	Missed    uint64            `json:"missed"` // hedges that reached no application
	Won       uint64            `json:"won"`
	ExtraLoad float64           `json:"extra_load"` // hedges that reached an application, per request
	Gates     map[string]uint64 `json:"gates"`      // decisions not to hedge, by the closed gate
}

type routeHedging struct {
	Route   string        `json:"route"`
	Mode    string        `json:"mode"`
	Verdict string        `json:"verdict,omitempty"`
	Choice  string        `json:"choice,omitempty"`  // why this is the delay, if it is the best one
	DelayMS float64       `json:"delay_ms"`          // current, the longest of all loops
	WinRate *float64      `json:"win_rate"`          // of the hedges that reached an application; null if there were none
	Latency quantiles     `json:"latency"`           // of first attempts
	Classes []class       `json:"classes,omitempty"` // of requests, at most 16 of each loop
	Effect  *effect       `json:"effect,omitempty"`
	Watched *quantiles    `json:"watched,omitempty"` // of the requests that the forecasts are made of
	Shadow  []delayEffect `json:"shadow,omitempty"`
	hedgingCounts
}

// class describes the requests of one class in the last 5 to 60 s. Of the loops' delays and medians
// the longest is shown.
type class struct {
	Name     string  `json:"name"`
	Samples  int     `json:"samples"`
	DelayMS  float64 `json:"delay_ms"`
	MedianMS float64 `json:"median_ms"`
	Merged   bool    `json:"merged"` // delay and median are the route's
}

// quantiles are latencies in milliseconds: of the last 30 to 60 s, or longer of watched requests.
// null means that the quantile is unknown or beyond the deadline.
type quantiles struct {
	Samples int64    `json:"samples"`
	P50     *float64 `json:"p50_ms"`
	P97     *float64 `json:"p97_ms"`
	P99     *float64 `json:"p99_ms"`
	P999    *float64 `json:"p999_ms"`
}

// effect is what hedges do to the latency of all requests.
type effect struct {
	With    quantiles `json:"with"`    // as callers saw it
	Without quantiles `json:"without"` // of first attempts, had they not been overtaken
	OneIn   int       `json:"one_in"`  // of so many decisions for late requests one may hedge
}

// delayEffect is the effect that hedging with one delay would have had on the watched requests.
type delayEffect struct {
	DelayMS   float64  `json:"delay_ms"`
	Current   bool     `json:"current"` // this delay is the current one
	P99       *float64 `json:"p99_ms"`
	P999      *float64 `json:"p999_ms"`
	ExtraLoad float64  `json:"extra_load"`
}

func (s *Server) hedging(reports []stats.WorkerReport) any {
	body := hedgingBody{Services: map[string]hedgingState{}}
	for i := range reports {
		body.Cancels += reports[i].Stats.Cancels
		body.CancelsSaved += reports[i].Stats.CancelsSaved
	}
	for _, svc := range merge(reports) {
		body.Services[svc.Name] = s.hedgingState(&svc)
	}
	return &body
}

func (s *Server) hedgingState(svc *stats.ServiceReport) hedgingState {
	st := hedgingState{
		Mode: s.service(svc.Name).Hedge.Mode, Verdict: verdict(svc), Choice: choice(svc), hedgingCounts: countsOf(&svc.Stats.Counts),
		Retries: svc.Stats.Retries, InFlight: svc.HedgesInFlight, Tokens: svc.Tokens,
		DelayMS: map[string]float64{}, Routes: []routeHedging{},
	}
	if p := &svc.Stalls; p.Every > 0 {
		st.Periodic = &stallPeriod{Every: p.Every.Seconds(), Length: p.Length.Seconds(), Seen: p.Seen, Summary: stalls(svc)}
		if second, ok := p.Second(svc.StalledAt); ok {
			st.Periodic.Second = &second
		}
	}
	// Primaries do not include requests that were refused before an attempt.
	st.Requests = svc.Stats.Requests
	strongest := hedge.Off
	for i := range svc.Routes {
		rt := &svc.Routes[i]
		strongest = max(strongest, rt.Mode)
		st.DelayMS[routeName(rt.Route)] = ms(rt.Delay)
		st.Routes = append(st.Routes, routeState(rt))
	}
	if len(svc.Routes) > 0 {
		st.Mode = strongest.String()
	}
	return st
}

func routeState(r *stats.RouteReport) routeHedging {
	st := routeHedging{
		Route: routeName(r.Route), Mode: r.Mode.String(), Choice: r.Choice.Describe(r.Mode == hedge.On), DelayMS: ms(r.Delay), hedgingCounts: countsOf(&r.Counts),
		Latency: quantilesOf(&r.Latency),
	}
	if e := effectOf(r); e != nil {
		st.Verdict = e.Verdict()
		if r.Mode == hedge.On {
			st.Effect = &effect{With: quantilesOf(&e.With), Without: quantilesOf(&e.Without), OneIn: e.OneIn}
		} else {
			watched := quantilesOf(&r.Watched)
			st.Watched = &watched
		}
	}
	if reached := r.Counts.Hedges - r.Counts.HedgesMissed; reached > 0 {
		rate := float64(r.Counts.HedgesWon) / float64(reached)
		st.WinRate = &rate
	}
	for _, c := range r.Classes {
		st.Classes = append(st.Classes, class{c.Name, c.Samples, ms(c.Delay), ms(c.Median), c.Merged})
	}
	for i := range r.Forecasts {
		f := &r.Forecasts[i]
		st.Shadow = append(st.Shadow, delayEffect{
			DelayMS: ms(f.Delay), Current: f.Current,
			P99: quantile(&f.Latency, .99), P999: quantile(&f.Latency, .999),
			ExtraLoad: ratio(f.Hedges, f.Requests),
		})
	}
	return st
}

// effectOf returns what hedging brings to a route, or would bring, or nil if it is off.
func effectOf(r *stats.RouteReport) *hedge.Effect {
	switch {
	case r.Effect != nil:
		return r.Effect
	case len(r.Forecasts) == 0:
		return nil
	}
	f := &r.Forecasts[0]
	return &hedge.Effect{Mode: hedge.Shadow, Without: r.Watched, With: f.Latency, Hedges: f.Hedges, Requests: f.Requests}
}

// verdict says what hedging brings to the routes of a service where it is on or, if there are
// none, what it would bring to those in shadow mode. It returns "" if there are none either.
func verdict(svc *stats.ServiceReport) string {
	var sum *hedge.Effect
	for i := range svc.Routes {
		switch e := effectOf(&svc.Routes[i]); {
		case e == nil:
		case sum == nil || sum.Mode < e.Mode:
			clone := *e
			sum = &clone
		case sum.Mode == e.Mode:
			sum.Add(e)
		}
	}
	if sum == nil {
		return ""
	}
	return sum.Verdict()
}

// choice says which delay was chosen for the busiest of the routes that verdict is about, and why. It returns ""
// if no delay was.
func choice(svc *stats.ServiceReport) string {
	var busiest *stats.RouteReport
	for i := range svc.Routes {
		r := &svc.Routes[i]
		if busiest == nil || r.Mode > busiest.Mode || r.Mode == busiest.Mode && r.Counts.Primaries > busiest.Counts.Primaries {
			busiest = r
		}
	}
	if busiest == nil {
		return ""
	}
	return busiest.Choice.Describe(busiest.Mode == hedge.On)
}

// stalls says in which period the replicas of a service stall together. It returns "" if none is known.
func stalls(svc *stats.ServiceReport) string {
	if svc.Stalls.Every == 0 {
		return ""
	}
	return svc.Stalls.Describe(svc.Name, svc.StalledAt)
}

func countsOf(c *hedge.Counts) hedgingCounts {
	return hedgingCounts{
		Requests: c.Primaries, Hedges: c.Hedges, Missed: c.HedgesMissed, Won: c.HedgesWon,
		ExtraLoad: ratio(c.Hedges-c.HedgesMissed, c.Primaries), Gates: gateCounts(c),
	}
}

// ratio returns part / whole, and 0 if both are 0.
func ratio(part, whole uint64) float64 { return float64(part) / float64(max(whole, 1)) }

func quantilesOf(d *histogram.Distribution) quantiles {
	return quantiles{
		Samples: d.Samples(), P50: quantile(d, .5), P97: quantile(d, .97), P99: quantile(d, .99), P999: quantile(d, .999),
	}
}

func quantile(d *histogram.Distribution, q float64) *float64 {
	latency, ok := d.Quantile(q)
	if !ok {
		return nil
	}
	x := ms(latency)
	return &x
}

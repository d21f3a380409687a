package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// ShadowMode forecasts what hedging would do to a route. It gives forecast.Shadow what that needs to know of the
// route.
type ShadowMode struct {
	forecast *forecast.Shadow
	route    *Route
	quota    *forecast.Quota // nil means no bound
}

func newShadowMode(r *Route, loops int) *ShadowMode {
	p := &r.Policy
	return &ShadowMode{route: r, forecast: forecast.New(forecast.Settings{
		MinDelay: p.MinDelay, MaxDelay: p.MaxDelay, Budget: p.Budget, MinBurst: minBurst(loops),
		Max: p.Max, Sample: p.Sample, AskInterval: minAskInterval,
	})}
}

// Bound makes the route share quota with other routes.
func (s *ShadowMode) Bound(quota *forecast.Quota) { s.quota = quota }

// Retire gives back the route's part of its quota. The route gets no more requests.
func (s *ShadowMode) Retire() { s.forecast.Retire(s.quota) }

// Begin decides whether a request that may be hedged is watched.
func (s *ShadowMode) Begin(w *Watch) { s.forecast.Begin(&w.Watch, s.quota) }

// Sent is forecast.Shadow.Sent. The caller keeps the Watch until the attempt ends. If w.Follows then, and something is
// learned from the attempt, it calls End.
func (s *ShadowMode) Sent(now time.Duration, w *Watch, endpoint uint32) (note bool) {
	return s.forecast.Sent(now, &w.Watch, endpoint)
}

// Note is forecast.Shadow.Note.
func (s *ShadowMode) Note(now time.Duration, w *Watch, unavailable bool) {
	s.forecast.Note(now, &w.Watch, unavailable)
}

// End records that a primary got its response, or was cut off at its deadline.
func (s *ShadowMode) End(now time.Duration, w *Watch, cutOff bool) {
	r := s.route
	state := forecast.State{Primaries: r.Counts.Primaries, Slower: r.Latencies.slower(now, w.Class)}
	if w.Watched {
		state.Delay, state.Paid = r.Delays.Of(now, w.Class), w.Paid
		_, state.Median, _ = r.Latencies.estimateOf(now, w.Class)
	}
	s.forecast.End(now, state, &w.Watch, cutOff)
}

// Forecasts returns what hedging would have done to the watched requests with the first most of
// several delays; see forecast.Shadow. A nil ShadowMode returns nil.
func (s *ShadowMode) Forecasts(now time.Duration, most int) (out []forecast.Forecast, watched histogram.Distribution) {
	if s == nil || most == 0 {
		return nil, watched
	}
	return s.forecast.Forecasts(now, s.route.Delays.Of(now, 0), most)
}

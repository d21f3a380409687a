package hedge

import "time"

// effect is what hedges did to the latency of a route: of each primary that a hedge overtook,
// when the hedge's response came, and when the primary's would have come.
type effect struct{ won, lost window }

// Effect is the latency of requests in the last 30 to 60 s, to be added up over loops.
type Effect struct {
	With    Distribution // as callers saw it
	Without Distribution // of primaries; those that the sidecar could still withdraw are censored
	OneIn   int          // of so many late requests one is hedged, on the loop that hedges the fewest
}

// Add adds o to e.
func (e *Effect) Add(o *Effect) {
	e.With.Add(&o.With)
	e.Without.Add(&o.Without)
	e.OneIn = max(e.OneIn, o.OneIn)
}

// Effect returns what hedges do. It returns nil unless the mode is On. It is for reports.
func (r *Route) Effect(now time.Duration) *Effect {
	if r.Policy.Mode != On {
		return nil
	}
	primaries := r.Estimator.Distribution(now)
	e := &Effect{With: primaries, Without: primaries, OneIn: r.worth.of()}
	if r.effect != nil {
		e.With.uncensor(distribution(&r.effect.won, now))
		e.Without.uncensor(distribution(&r.effect.lost, now))
	}
	return e
}

// uncensor replaces censored samples by those of o.
func (d *Distribution) uncensor(o Distribution) {
	d.censored -= min(o.Samples(), d.censored)
	d.Add(&o)
}

// Overtaken records that a hedge's response came before that of the primary, which was sent so
// long ago. Judge follows if the application finishes the primary.
func (r *Route) Overtaken(now, after time.Duration) {
	if r.effect == nil {
		r.effect = new(effect)
	}
	r.effect.won.at(now, longHalf).add(after)
}

// Judge records a hedged request whose primary took so long. saved is how much earlier the
// response of its hedge came, 0 if the primary's came first.
func (r *Route) Judge(now, took, saved time.Duration) {
	r.worth.judge(took, saved)
	if saved > 0 && r.effect != nil {
		r.effect.lost.at(now, longHalf).add(took)
	}
}

package lb

// RaceEnabled tells whether the race detector watches.
const RaceEnabled = raceEnabled

// PerWeight is e's load per weight, as far as that is known.
func (v *View) PerWeight(e *Endpoint) float64 { return e.perWeight(e.load(v.Now)) }

package lb

// PerWeight returns the load of e per weight.
func (v *View) PerWeight(e *Endpoint) float64 { return e.perWeight(e.load(v.Now)) }

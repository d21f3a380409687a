package lb

// PerWeight returns the load of e per weight.
func (v *View) PerWeight(e *Endpoint) float64 { return e.perWeight(e.load(v.Now)) }

// At returns the i-th endpoint.
func (v *View) At(i int) *Endpoint { return v.group.endpoints[i] }

// Score returns the value that LeastPending compares.
func (v *View) Score(e *Endpoint) float64 { return e.score(v.Now) }

package lb

import "time"

// PerWeight returns the load of e per weight.
func (v *View) PerWeight(e *Endpoint) float64 { return e.perWeight(e.load(v.Now)) }

// At returns the i-th endpoint.
func (v *View) At(i int) *Endpoint { return v.group.endpoints[i] }

// Score returns the value that LeastPending compares.
func (v *View) Score(e *Endpoint) float64 { return v.score(e) }

// score returns the value that LeastPending compares at a time.
func score(e *Endpoint, now time.Duration) float64 {
	v := View{Query: Query{Now: now}}
	return v.score(e)
}

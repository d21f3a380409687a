package lb

// Random picks at random, in proportion to weight: the baseline for the other policies.
type Random struct{}

// Choose implements Policy.
func (Random) Choose(v *View) *Endpoint {
	if e := v.drawEligible(nil); e != nil {
		return e
	}
	return v.drawOfEligible()
}

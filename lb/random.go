package lb

// Random picks at random, in proportion to weight. It looks at no load, so it is
// what the other policies have to beat.
type Random struct{}

// Choose implements Policy.
func (Random) Choose(v *View) *Endpoint {
	if e := v.drawEligible(nil); e != nil {
		return e
	}
	return v.drawOfEligible()
}

package health

// judge makes verdicts of outcomes: a verdict changes after enough contrary outcomes in a row.
type judge struct {
	healthy  bool
	unproven bool // has never passed: one pass makes it healthy
	streak   int  // consecutive outcomes that contradict healthy
}

// note records an outcome and reports whether the verdict has changed.
func (j *judge) note(c *Check, passed bool) (changed bool) {
	if passed == j.healthy {
		j.streak = 0
		return false
	}
	need := c.Healthy
	switch {
	case j.healthy:
		need = c.Unhealthy
	case j.unproven:
		need = 1
	}
	if j.streak++; j.streak < need {
		return false
	}
	*j = judge{healthy: passed}
	return true
}

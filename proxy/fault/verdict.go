package fault

// Verdict is what a request says about its service.
type Verdict uint8

const (
	VerdictNone Verdict = iota // nothing: withdrawn, or refused here
	VerdictGood
	VerdictBad
)

func VerdictOf(status int) Verdict {
	if status >= 500 {
		return VerdictBad
	}
	return VerdictGood
}

// Verdict tells whether the failure is the service's. One that had no chance,
// because a limit or the request itself was in the way, says nothing.
func (f *Failure) Verdict() Verdict {
	switch f {
	case Connect, GoAway, Reset, Malformed, Deadline:
		return VerdictBad
	}
	return VerdictNone
}

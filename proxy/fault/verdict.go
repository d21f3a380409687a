package fault

// Verdict is what the end of a request says about its service.
type Verdict uint8

const (
	VerdictNone Verdict = iota // nothing: cancelled, or refused by this sidecar
	VerdictGood                // the service works
	VerdictBad                 // the service failed
)

// VerdictOf returns the verdict of a response with an HTTP status.
func VerdictOf(status int) Verdict {
	if status >= 500 {
		return VerdictBad
	}
	return VerdictGood
}

// Verdict returns VerdictBad if the service caused the failure. A request that a
// limit, or a defect of its own, kept from the service gives VerdictNone.
func (f *Failure) Verdict() Verdict {
	switch f {
	case Connect, GoAway, Reset, TryTimeout, Malformed, Deadline:
		return VerdictBad
	}
	return VerdictNone
}

package fault

import "github.com/remora-proxy/remora/protocol/link"

// Reason returns the reason that another sidecar gets for a stream that failed with f.
// For a request it gets the one that Refusal returns.
func (f *Failure) Reason() link.Reason { return f.reason }

// Refusal returns the reason that another sidecar gets for a request that failed with
// f. Reasons below link.UpstreamReset promise that the application saw nothing of the
// request; maybeProcessed says that f can't promise that.
func (f *Failure) Refusal(maybeProcessed bool) link.Reason {
	switch {
	case !maybeProcessed || f.reason >= link.UpstreamReset:
		return f.reason
	case f == Deadline:
		return link.UpstreamTimeout
	}
	return link.UpstreamReset
}

// failures maps the reasons of another sidecar to failures. OfReason maps the reasons
// of later versions by link.Reason.Retryable.
var failures = map[link.Reason]*Failure{
	link.Overload:          Overloaded,
	link.RateLimited:       RateLimited,
	link.Exhausted:         PoolExhausted,
	link.NoSlot:            NoSlot,
	link.Draining:          Draining,
	link.NoService:         NoRoute,
	link.NotAllowed:        NotAllowed,
	link.ConnectionLogin:   ConnectionLogin,
	link.UpstreamConnect:   Connect,
	link.UpstreamReset:     Reset,
	link.UpstreamMalformed: Malformed,
	link.ResponseTooLarge:  ResponseTooLarge,
	link.DeadlinePassed:    Deadline,
	link.UpstreamTimeout:   Deadline,
	link.TooLarge:          RequestTooLarge,
	link.Malformed:         BadRequest,
}

// OfCode returns the failure of a stream that another sidecar has refused or lost, by the stable code that it
// sent. It returns nil for a failure after which no stream is sent again.
func OfCode(code []byte) *Failure {
	for _, f := range [...]*Failure{Draining, Connect, GoAway, Refused, Reset} {
		if string(code) == f.Code {
			return f
		}
	}
	return nil
}

// OfReason returns the failure of a request that another sidecar refused.
func OfReason(why link.Reason) *Failure {
	if f := failures[why]; f != nil {
		return f
	}
	if why.Retryable() {
		return Overloaded
	}
	return Reset
}

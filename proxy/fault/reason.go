package fault

import "github.com/remora-proxy/remora/protocol/link"

// Reason is what another sidecar is told of f where a link has no request to
// refuse: as the reply to a stream.
func (f *Failure) Reason() link.Reason { return f.reason }

// Refusal is the reason for the other sidecar. Those below link.UpstreamReset
// promise that the application saw nothing of the request.
func (f *Failure) Refusal(reached bool) link.Reason {
	switch {
	case !reached || f.reason >= link.UpstreamReset:
		return f.reason
	case f == Deadline:
		return link.UpstreamTimeout
	}
	return link.UpstreamReset
}

// failures maps what another sidecar says to what it means here. What a later
// version may say counts by link.Reason.Retryable.
var failures = map[link.Reason]*Failure{
	link.Overload:          Overloaded,
	link.RateLimited:       RateLimited,
	link.Exhausted:         PoolExhausted,
	link.NoSlot:            NoSlot,
	link.Draining:          Draining,
	link.NoService:         NoRoute,
	link.UpstreamConnect:   Connect,
	link.UpstreamReset:     Reset,
	link.UpstreamMalformed: Malformed,
	link.ResponseTooLarge:  ResponseTooLarge,
	link.DeadlinePassed:    Deadline,
	link.UpstreamTimeout:   Deadline,
	link.TooLarge:          RequestTooLarge,
	link.Malformed:         BadRequest,
}

// OfReason is what a refusal by another sidecar means to whoever waits here.
func OfReason(why link.Reason) *Failure {
	if f := failures[why]; f != nil {
		return f
	}
	if why.Retryable() {
		return Overloaded
	}
	return Reset
}

package link

// Reason says why a request ends without a response. Below 128 it was surely not
// handed to the application, and below 64 another endpoint may well take it; from
// 128 on the application may have seen it. So a reason that a later version adds
// is handled rightly by an older peer.
type Reason uint8

// Reasons of REFUSED and GOAWAY.
const (
	Overload        Reason = 1  // the queue is full
	NoSlot          Reason = 2  // a hedge that would have had to queue
	Draining        Reason = 3  // this sidecar is going away
	UpstreamConnect Reason = 4  // the application can't be reached: nothing was sent
	NoService       Reason = 5  // this sidecar does not serve the service
	RateLimited     Reason = 6  // more requests a second than it takes
	Exhausted       Reason = 7  // the application turned it away, and is not to be asked again
	DeadlinePassed  Reason = 64 // dropped before the application saw it
	TooLarge        Reason = 65 // body or headers over the limit
	Malformed       Reason = 66 // text that could not be sent on safely

	UpstreamReset     Reason = 128 // the connection to the application was lost
	UpstreamMalformed Reason = 129 // the application's answer is malformed
	ResponseTooLarge  Reason = 130 // the application's answer is over the limit
	UpstreamTimeout   Reason = 131 // the application has the request and is late
)

// Retryable tells whether it makes sense to send the request to another
// endpoint. It is safe: the application saw nothing of it.
func (r Reason) Retryable() bool { return r < 64 }

// String is the stable name used in logs and metrics.
func (r Reason) String() string {
	switch r {
	case Overload:
		return "overload"
	case NoSlot:
		return "no_slot"
	case Draining:
		return "draining"
	case UpstreamConnect:
		return "upstream_connect"
	case NoService:
		return "no_service"
	case RateLimited:
		return "rate_limited"
	case Exhausted:
		return "exhausted"
	case DeadlinePassed:
		return "deadline_passed"
	case TooLarge:
		return "too_large"
	case Malformed:
		return "malformed"
	case UpstreamReset:
		return "upstream_reset"
	case UpstreamMalformed:
		return "upstream_malformed"
	case ResponseTooLarge:
		return "response_too_large"
	case UpstreamTimeout:
		return "upstream_timeout"
	}
	return "unknown"
}

// Dropped is what became of a cancelled request. Other values count as
// CancelAtApp, the careful reading.
type Dropped uint8

// Values of a CANCEL_ACK.
const (
	CancelDropped Dropped = 1 // the application never saw it, or its answer was ready and is withdrawn
	CancelAtApp   Dropped = 2 // the application is still at work on it; its answer will be discarded

	// CancelFinished follows CancelAtApp once the application is done with the
	// request: the endpoint has one less pending.
	CancelFinished Dropped = 3
)

// String is the stable name used in logs and metrics.
func (d Dropped) String() string {
	switch d {
	case CancelDropped:
		return "dropped"
	case CancelFinished:
		return "finished"
	}
	return "at_app"
}

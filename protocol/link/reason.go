package link

// Reason says why a request ends without a response. With a reason below 128 the
// application has not seen the request, and below 64 another endpoint may accept it.
// From 128 on the application may have seen it. So an older peer handles a reason of
// a later version correctly.
type Reason uint8

// Reasons of REFUSED and GOAWAY.
const (
	Overload        Reason = 1  // the queue is full
	NoSlot          Reason = 2  // a hedge that would have to queue
	Draining        Reason = 3  // this sidecar is shutting down
	UpstreamConnect Reason = 4  // the application can't be reached: nothing was sent
	NoService       Reason = 5  // this sidecar does not serve the service
	RateLimited     Reason = 6  // the rate limit is exceeded
	Exhausted       Reason = 7  // the application refused it, and a retry is not allowed
	DeadlinePassed  Reason = 64 // dropped before the application saw it
	TooLarge        Reason = 65 // body or headers over the limit
	Malformed       Reason = 66 // text that is not safe to forward

	UpstreamReset     Reason = 128 // the connection to the application was lost
	UpstreamMalformed Reason = 129 // the application's response is malformed
	ResponseTooLarge  Reason = 130 // the application's response is over the limit
	UpstreamTimeout   Reason = 131 // the application has the request and does not respond in time
)

// Retryable reports whether another endpoint may accept the request. The retry is
// safe: the application has seen nothing of it.
func (r Reason) Retryable() bool { return r < 64 }

// String returns the stable name for logs and metrics.
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

// Dropped is the state of a cancelled request. Unknown values must be treated as
// CancelAtApp, the safe assumption.
type Dropped uint8

// Values of a CANCEL_ACK.
const (
	CancelDropped Dropped = 1 // the application never saw it, or its response was ready and is dropped
	CancelAtApp   Dropped = 2 // the application still works on it; its response will be discarded

	// CancelFinished follows CancelAtApp once the application has finished the
	// request: the endpoint has one pending request less.
	CancelFinished Dropped = 3
)

// String returns the stable name for logs and metrics.
func (d Dropped) String() string {
	switch d {
	case CancelDropped:
		return "dropped"
	case CancelFinished:
		return "finished"
	}
	return "at_app"
}

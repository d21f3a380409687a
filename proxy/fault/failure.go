package fault

import "github.com/remora-proxy/remora/protocol/link"

// Failure is why an exchange or one of its attempts came to nothing. All
// instances are package variables, so that failing allocates nothing; they are
// compared by identity.
type Failure struct {
	Code   string // stable, sent as x-remora-error
	Status int    // HTTP status towards the caller
	Text   string // one line for people

	// reason is what a link downstream tells the other sidecar instead of a
	// status, so that it can decide on a retry.
	reason link.Reason
	Retry  retryClass
}

// BlamesEndpoint tells whether the failure is the endpoint's, and not one of load, of the
// request, or of a drain.
func (f *Failure) BlamesEndpoint() bool {
	return f == Connect || f == Reset || f == Malformed
}

// AsUnsent is what the end of a connection with f means to a request of which nothing
// has left.
func (f *Failure) AsUnsent() *Failure {
	if f == DialLimit {
		return f
	}
	return Connect
}

// retryClass says what a failed attempt permits (design: retries that are free
// because the request was surely not processed, and retries that are paid).
type retryClass uint8

const (
	RetryNever         retryClass = iota
	RetryUnsendable               // can't be sent, there or elsewhere
	RetryFree                     // nothing was sent, or surely nothing processed: free, any method
	RetryFreeElsewhere            // no room to send it: free, any method, not there again
	RetryPaid                     // turned away before the application saw it: costs a token
	RetryPaidElsewhere            // the same, but by the application itself: not to be asked again
	RetryIfIdempotent             // may have been processed: idempotent only, costs a token
)

// The failures that a caller may see.
var (
	NoRoute = &Failure{Code: "no-route", Status: 404, reason: link.NoService,
		Text: "no route matches this request"}
	Loop = &Failure{Code: "loop-detected", Status: 508,
		Text: "the request comes back to where it has been"}
	MaxForwards = &Failure{Code: "max-forwards", Status: 501,
		Text: "Max-Forwards ends here, and this sidecar does not answer the method itself"}
	NoEndpoint = &Failure{Code: "no-endpoint", Status: 503, reason: link.UpstreamConnect,
		Text: "the service has no endpoint"}
	Overloaded = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, Retry: RetryPaid,
		Text: "too much work is pending"}
	QueueFull = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, Retry: RetryUnsendable,
		Text: "too much work waits for the application"}
	StreamLimit = &Failure{Code: "connection-full", Status: 503, reason: link.Overload, Retry: RetryFreeElsewhere,
		Text: "the connection to the endpoint carries as many requests as it may"}
	DialLimit = &Failure{Code: "too-many-dials", Status: 503, reason: link.Overload, Retry: RetryFreeElsewhere,
		Text: "too many connections to endpoints are being opened"}
	PoolExhausted = &Failure{Code: "pool-exhausted", Status: 503, reason: link.Exhausted, Retry: RetryPaidElsewhere,
		Text: "the application has no thread free"}
	RateLimited = &Failure{Code: "rate-limited", Status: 429, reason: link.RateLimited, Retry: RetryPaid,
		Text: "more requests a second than are allowed"}
	BreakerOpen = &Failure{Code: "breaker-open", Status: 503, reason: link.Overload, Retry: RetryPaid,
		Text: "the service has failed too often in a row"}
	NoSlot = &Failure{Code: "no-slot", Status: 503, reason: link.NoSlot,
		Text: "no free slot for a hedge"}
	Draining = &Failure{Code: "draining", Status: 503, reason: link.Draining, Retry: RetryFree,
		Text: "shutting down"}
	Connect = &Failure{Code: "upstream-connect", Status: 502, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "cannot connect to the endpoint"}
	GoAway = &Failure{Code: "upstream-goaway", Status: 502, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "the endpoint went away before it took the request"}
	Reset = &Failure{Code: "upstream-reset", Status: 502, reason: link.UpstreamReset, Retry: RetryIfIdempotent,
		Text: "the connection to the endpoint was lost"}
	Malformed = &Failure{Code: "upstream-malformed", Status: 502, reason: link.UpstreamMalformed,
		Text: "the endpoint's answer is malformed"}
	ResponseTooLarge = &Failure{Code: "response-too-large", Status: 502, reason: link.ResponseTooLarge,
		Text: "the endpoint's answer is larger than limits.message, and can't be passed on as a stream"}
	Deadline = &Failure{Code: "deadline", Status: 504, reason: link.DeadlinePassed,
		Text: "no answer in time"}
	Shed = &Failure{Code: "shed", Status: 503, reason: link.Overload,
		Text: "memory is short, and this request took the most"}
	Pipelined = &Failure{Code: "too-many-pipelined", Status: 429,
		Text: "too many requests are pipelined on this connection"}
	BadRequest = &Failure{Code: "bad-request", Status: 400, reason: link.Malformed, Retry: RetryUnsendable,
		Text: "the request can't be sent on safely"}
	RequestTooLarge = &Failure{Code: "message-too-large", Status: 413, reason: link.TooLarge,
		Text: "the request is larger than the other sidecar takes"}
	CallTooLarge = &Failure{Code: "message-too-large", Status: 413,
		Text: "the call is larger than limits.message"}
	SlowHead = &Failure{Code: "header-timeout", Status: 408,
		Text: "the request's head took too long"}
	SlowBody = &Failure{Code: "body-timeout", Status: 408,
		Text: "the request's body took too long"}
	NotConvertible = &Failure{Code: "not-convertible", Status: 501, reason: link.NoService, Retry: RetryUnsendable,
		Text: "the application speaks HTTP, and calls of Dubbo are not converted to it"}
	Unsupported = &Failure{Code: "not-supported", Status: 501, reason: link.NoService,
		Text: "this connection can't carry a stream"}
)

package proxy

import (
	"errors"

	"github.com/remora-proxy/remora/protocol/link"
)

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
	retry  retryClass
}

// blames tells whether the failure is the endpoint's, and not one of load, of the
// request, or of a drain.
func (f *Failure) blames() bool {
	return f == FailConnect || f == FailReset || f == FailMalformed
}

// Reason is what another sidecar is told of f where a link has no request to
// refuse: as the reply to a stream.
func (f *Failure) Reason() link.Reason { return f.reason }

// refusal is the reason for the other sidecar. Those below link.UpstreamReset
// promise that the application saw nothing of the request.
func (f *Failure) refusal(reached bool) link.Reason {
	switch {
	case !reached || f.reason >= link.UpstreamReset:
		return f.reason
	case f == FailDeadline:
		return link.UpstreamTimeout
	}
	return link.UpstreamReset
}

// dialFailed logs that a dial of the endpoint at addr ended with err, unless the process
// ends it (nil), and tells what that means to those that it was for.
func (s *service) dialFailed(addr string, err error) *Failure {
	if errors.Is(err, ErrDialQueue) {
		return FailDials
	}
	if err != nil {
		s.log.Warn("endpoint not connected", "service", s.cfg.Name, "endpoint", addr, "error", err)
	}
	return FailConnect
}

// unsent is what the end of a connection with f means to a request of which nothing
// has left.
func (f *Failure) unsent() *Failure {
	if f == FailDials {
		return f
	}
	return FailConnect
}

// retryClass says what a failed attempt permits (design: retries that are free
// because the request was surely not processed, and retries that are paid).
type retryClass uint8

const (
	retryNever     retryClass = iota
	retryUnfit                // can't be sent, there or elsewhere
	retryConnect              // nothing was sent, or surely nothing processed: free, any method
	retryUnsent               // no room to send it: free, any method, not there again
	retryRefused              // turned away before the application saw it: costs a token
	retryElsewhere            // the same, but by the application itself: not to be asked again
	retryReset                // may have been processed: idempotent only, costs a token
)

// The failures that a caller may see.
var (
	FailNoRoute = &Failure{Code: "no-route", Status: 404, reason: link.NoService,
		Text: "no route matches this request"}
	FailLoop = &Failure{Code: "loop-detected", Status: 508,
		Text: "the request comes back to where it has been"}
	FailMaxForwards = &Failure{Code: "max-forwards", Status: 501,
		Text: "Max-Forwards ends here, and this sidecar does not answer the method itself"}
	FailNoEndpoint = &Failure{Code: "no-endpoint", Status: 503, reason: link.UpstreamConnect,
		Text: "the service has no endpoint"}
	FailOverloaded = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, retry: retryRefused,
		Text: "too much work is pending"}
	FailQueueFull = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, retry: retryUnfit,
		Text: "too much work waits for the application"}
	FailFull = &Failure{Code: "connection-full", Status: 503, reason: link.Overload, retry: retryUnsent,
		Text: "the connection to the endpoint carries as many requests as it may"}
	FailDials = &Failure{Code: "too-many-dials", Status: 503, reason: link.Overload, retry: retryUnsent,
		Text: "too many connections to endpoints are being opened"}
	FailExhausted = &Failure{Code: "pool-exhausted", Status: 503, reason: link.Exhausted, retry: retryElsewhere,
		Text: "the application has no thread free"}
	FailRateLimited = &Failure{Code: "rate-limited", Status: 429, reason: link.RateLimited, retry: retryRefused,
		Text: "more requests a second than are allowed"}
	FailBreakerOpen = &Failure{Code: "breaker-open", Status: 503, reason: link.Overload, retry: retryRefused,
		Text: "the service has failed too often in a row"}
	FailNoSlot = &Failure{Code: "no-slot", Status: 503, reason: link.NoSlot,
		Text: "no free slot for a hedge"}
	FailDraining = &Failure{Code: "draining", Status: 503, reason: link.Draining, retry: retryConnect,
		Text: "shutting down"}
	FailConnect = &Failure{Code: "upstream-connect", Status: 502, reason: link.UpstreamConnect, retry: retryConnect,
		Text: "cannot connect to the endpoint"}
	FailUnprocessed = &Failure{Code: "upstream-goaway", Status: 502, reason: link.UpstreamConnect, retry: retryConnect,
		Text: "the endpoint went away before it took the request"}
	FailReset = &Failure{Code: "upstream-reset", Status: 502, reason: link.UpstreamReset, retry: retryReset,
		Text: "the connection to the endpoint was lost"}
	FailMalformed = &Failure{Code: "upstream-malformed", Status: 502, reason: link.UpstreamMalformed,
		Text: "the endpoint's answer is malformed"}
	FailTooLarge = &Failure{Code: "response-too-large", Status: 502, reason: link.ResponseTooLarge,
		Text: "the endpoint's answer is larger than limits.message, and can't be passed on as a stream"}
	FailDeadline = &Failure{Code: "deadline", Status: 504, reason: link.DeadlinePassed,
		Text: "no answer in time"}
	FailShed = &Failure{Code: "shed", Status: 503, reason: link.Overload,
		Text: "memory is short, and this request took the most"}
	FailPipelined = &Failure{Code: "too-many-pipelined", Status: 429,
		Text: "too many requests are pipelined on this connection"}
	FailBadRequest = &Failure{Code: "bad-request", Status: 400, reason: link.Malformed, retry: retryUnfit,
		Text: "the request can't be sent on safely"}
	FailRequestTooLarge = &Failure{Code: "message-too-large", Status: 413, reason: link.TooLarge,
		Text: "the request is larger than the other sidecar takes"}
	FailCallTooLarge = &Failure{Code: "message-too-large", Status: 413,
		Text: "the call is larger than limits.message"}
	FailSlowHead = &Failure{Code: "header-timeout", Status: 408,
		Text: "the request's head took too long"}
	FailSlowBody = &Failure{Code: "body-timeout", Status: 408,
		Text: "the request's body took too long"}
	FailNotConvertible = &Failure{Code: "not-convertible", Status: 501, reason: link.NoService, retry: retryUnfit,
		Text: "the application speaks HTTP, and calls of Dubbo are not converted to it"}
	FailUnsupported = &Failure{Code: "not-supported", Status: 501, reason: link.NoService,
		Text: "this connection can't carry a stream"}
)

package link

import "cmp"

// Reason says why a request ends without a response. Below 128 the application has not seen
// the request, and below 64 another endpoint may accept it. From 128 on the application may
// have seen it. So an older peer handles a reason of a later version correctly.
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
	NotAllowed      Reason = 67 // no rule allows the caller to send it
	ConnectionLogin Reason = 68 // its credentials log in a connection, which no request has to itself

	UpstreamReset     Reason = 128 // the connection to the application was lost
	UpstreamMalformed Reason = 129 // the application's response is malformed
	ResponseTooLarge  Reason = 130 // the application's response is over the limit
	UpstreamTimeout   Reason = 131 // the application has the request and does not respond in time
)

// Retryable reports whether another endpoint may accept the request, of which the application
// has seen nothing.
func (r Reason) Retryable() bool { return r < 64 }

// reasonNames are the names in docs/errors.md.
var reasonNames = [256]string{
	Overload:          "overload",
	NoSlot:            "no_slot",
	Draining:          "draining",
	UpstreamConnect:   "upstream_connect",
	NoService:         "no_service",
	RateLimited:       "rate_limited",
	Exhausted:         "exhausted",
	DeadlinePassed:    "deadline_passed",
	TooLarge:          "too_large",
	Malformed:         "malformed",
	NotAllowed:        "not_allowed",
	ConnectionLogin:   "connection_login",
	UpstreamReset:     "upstream_reset",
	UpstreamMalformed: "upstream_malformed",
	ResponseTooLarge:  "response_too_large",
	UpstreamTimeout:   "upstream_timeout",
}

// String returns the stable name of a reason, and "unknown" for one of a later version.
func (r Reason) String() string { return cmp.Or(reasonNames[r], "unknown") }

// Dropped is the state of a cancelled request. Unknown values must be treated as CancelAtApp,
// the safe assumption.
type Dropped uint8

// Values of a CANCEL_ACK.
const (
	// CancelDropped means that the application never saw it, or that its response was ready and is dropped. After
	// CancelAtApp it means that the acceptor has withdrawn it from the application, or has lost the application.
	CancelDropped Dropped = 1

	CancelAtApp Dropped = 2 // the application still works on it; its response will be discarded

	// CancelFinished follows CancelAtApp once the application has finished the request: the
	// endpoint has one pending request less.
	CancelFinished Dropped = 3

	// CancelClosed comes in place of CancelFinished if the application has not responded: the acceptor waits for it no
	// longer. After the acceptor has closed the connection, CancelClosed comes when the application would have responded. It says
	// nothing about whether the application is alive. Only a dialer that has FeatureCloses gets CancelClosed.
	CancelClosed Dropped = 4
)

// FeatureCloses in the Settings of a dialer means that it understands CancelClosed.
const FeatureCloses = 1 << 3

package fault

import "github.com/remora-proxy/remora/protocol/link"

// Failure is why an exchange or one of its attempts failed. The failures below are
// package variables, so that failing allocates nothing, and are compared by identity.
// Only the errors of codecs become failures of their own.
type Failure struct {
	Code   string // stable, sent as x-remora-error
	Status int    // HTTP status for the caller
	Text   string // one line for people

	// reason goes to the sidecar at the other end of a downstream link in place of a status,
	// for its decision on a retry. 0 means that no link refuses a request with this failure.
	reason link.Reason
	Retry  RetryClass // which retry it permits
}

// BlamesEndpoint reports whether the endpoint caused the failure, and not its load, the
// request or a drain.
func (f *Failure) BlamesEndpoint() bool {
	return f == Connect || f == Reset || f == Malformed
}

// NoRoom reports whether f says that the endpoint has no room for the request, and did no work. Whether
// it has room for others shows soon.
func (f *Failure) NoRoom() bool {
	return f.Retry == RetryPaid || f.Retry == RetryPaidElsewhere || f == Refused || f == Draining
}

// Local reports whether f says something about this sidecar's own connections and memory, or about the
// request, and nothing about the endpoint.
func (f *Failure) Local() bool {
	switch f {
	case NoSlot, StreamLimit, DialLimit, Shed, ConnectionLogin, NotConvertible, BadRequest, ResponseTooLarge, Deadline:
		return true
	}
	return false
}

// WithStatus returns a failure like f with another status.
func (f *Failure) WithStatus(status int) *Failure {
	other := *f
	other.Status = status
	return &other
}

// Free reports whether a retry after f is free: no application saw the request.
func (f *Failure) Free() bool { return f.Retry == RetryFree || f.Retry == RetryFreeElsewhere }

// Error is a Failure as an error, for what looks like a connection.
type Error struct{ *Failure }

func (e Error) Error() string { return e.Code + ": " + e.Text }

// AsUnsent returns the failure of an unsent request whose connection ended with f.
func (f *Failure) AsUnsent() *Failure {
	if f == DialLimit {
		return f
	}
	return Connect
}

// RetryClass says which retry a failed attempt permits. A retry is free if the
// endpoint can't have processed the request; any other costs a token of the budget.
type RetryClass uint8

const (
	RetryNever         RetryClass = iota // no retry
	RetryUnsendable                      // no retry: the request can't be sent to any endpoint
	RetryFree                            // nothing was sent or processed: free, any method
	RetryFreeElsewhere                   // no room to send it: free, any method, at another endpoint
	RetryPaid                            // refused before the application saw it: any method, costs a token
	RetryPaidElsewhere                   // refused by the application unprocessed: as RetryPaid, at another endpoint
	RetryIfIdempotent                    // may have been processed: idempotent requests only, costs a token
)

// The failures that a caller may see. What follows "means" in the comment of each is the
// last column of its row in docs/errors.md, where go generate writes it: what an operator
// should look at.
var (
	// NoRoute means that no route matches. Compare `match` in `/config` with the host that the
	// response's text names. In a tunnel: what it carries is not HTTP, and no route names CONNECT;
	// see [http_proxy](http-proxy.md). From another sidecar: the service of its `link` listener takes
	// no requests (`tcp`), no calls of Dubbo, or no opaque bytes (`opaque`).
	NoRoute = &Failure{Code: "no-route", Status: 404, reason: link.NoService,
		Text: "no route matches this request"}
	// DirectRefused means that no route matches, and `direct` may not reach the address of the
	// host: `direct.allow` of the listener lacks it, or it is special. The access log has the
	// address; see [http_proxy](http-proxy.md#hosts-without-a-route).
	DirectRefused = &Failure{Code: "direct-refused", Status: 403,
		Text: "no route matches this request, and its host may not be reached directly"}
	// Unresolved means that no route matches, and the host has no address in DNS. Is the name
	// right, and does a route have it?
	Unresolved = &Failure{Code: "unresolved", Status: 502,
		Text: "no route matches this request, and its host has no address"}
	// Loop means that the service's endpoints lead back to a sidecar that sends them here.
	// Compare `/endpoints` with the addresses of the listeners.
	Loop = &Failure{Code: "loop-detected", Status: 508,
		Text: "the request comes back to where it has been"}
	// MaxForwards means that a TRACE or OPTIONS with `Max-Forwards: 0` ends here.
	MaxForwards = &Failure{Code: "max-forwards", Status: 501,
		Text: "Max-Forwards ends here, and this sidecar does not answer the method itself"}
	// TLSRequired means plain HTTP to a listener with `tls`: let the caller use `https://`.
	TLSRequired = &Failure{Code: "tls-required", Status: 400,
		Text: "this port speaks HTTPS only"}
	// BadProxyHeader means that a connection to a listener with `proxy_protocol` came from an address
	// that is not in `trust`, or did not begin with a valid header within `timeouts.header`. The
	// log says which; see [PROXY protocol](sockets.md#proxy-protocol).
	BadProxyHeader = &Failure{Code: "bad-proxy-header", Status: 400,
		Text: "the connection does not begin with a header of the PROXY protocol from a trusted proxy"}
	// BadClientHello means that a connection to a `tcp` listener with routes by `sni` did not begin
	// with a ClientHello of TLS, within 16 KiB and `timeouts.header`. See
	// [SNI](sockets.md#tls-by-server-name).
	BadClientHello = &Failure{Code: "bad-client-hello", Status: 400,
		Text: "the connection does not begin with a ClientHello of TLS"}
	// NotAllowed means that no rule of `allow` matches the request, here or at the provider's
	// sidecar. `remora_allow_total` and the log say which rules; see [who may call what](allow.md).
	// In a tunnel: what it carries is not HTTP, and rules are for its host.
	NotAllowed = &Failure{Code: "not-allowed", Status: 403, reason: link.NotAllowed, Retry: RetryUnsendable,
		Text: "no rule allows this request"}
	// ConnectionLogin means that the client logs in its connection, and connections to applications are
	// not those of clients: by `NTLM`, by `Negotiate` in several steps, or by any `Negotiate` if the
	// application speaks HTTP/2. See [logins](headers.md#logins-of-connections).
	ConnectionLogin = &Failure{Code: "connection-login", Status: 501, reason: link.ConnectionLogin, Retry: RetryUnsendable,
		Text: "the credentials log in a connection, and connections to the application serve all clients"}
	// NoEndpoint means that no endpoint is registered, or all were withdrawn. See `/endpoints`
	// and the log of the provider's sidecar.
	NoEndpoint = &Failure{Code: "no-endpoint", Status: 503, reason: link.UpstreamConnect,
		Text: "the service has no endpoint"}
	// EndpointDown means that the health check of the stream's endpoint failed, and `check.on_down`
	// is `close`. See the log.
	EndpointDown = &Failure{Code: "endpoint-down", Status: 503, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "the endpoint's health check has failed"}
	// Overloaded means too much work: `max_pending`, `limits.buffered`, or a limit of the
	// provider's sidecar is reached.
	Overloaded = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, Retry: RetryPaid,
		Text: "too much work is pending"}
	// QueueFull means that too much work waits for the application: `max_concurrency` and
	// `max_queue` are full.
	QueueFull = &Failure{Code: "overloaded", Status: 503, reason: link.Overload, Retry: RetryUnsendable,
		Text: "too much work waits for the application"}
	// StreamLimit means that 4096 requests are in flight on each loop's link or Dubbo
	// connection, at every endpoint tried; or 128 HTTP/2 connections to one of several endpoints, for
	// gRPC streams and long bodies to any, had no stream free for `connect_timeout`. Add endpoints or
	// `loops`, or lower `max_pending`.
	StreamLimit = &Failure{Code: "connection-full", Status: 503, reason: link.Overload, Retry: RetryFreeElsewhere,
		Text: "the connection to the endpoint carries as many requests as it may"}
	// DialLimit means that 4096 dials wait, or this one waited too long, and no connection to the
	// endpoint is open: a burst after a start, to endpoints that do not respond; or no file
	// descriptor is left for one. See `connect_timeout`, `max_pending` and `LimitNOFILE`.
	DialLimit = &Failure{Code: "too-many-dials", Status: 503, reason: link.Overload, Retry: RetryFreeElsewhere,
		Text: "too many connections to endpoints are being opened"}
	// PoolExhausted means that all threads of the Dubbo provider are busy. Set
	// `max_concurrency` to their number, so that calls wait in the sidecar.
	PoolExhausted = &Failure{Code: "pool-exhausted", Status: 503, reason: link.Exhausted, Retry: RetryPaidElsewhere,
		Text: "the application has no thread free"}
	// RateLimited means a rate above `rate_limit` of listener, route or service, here or at the
	// provider's sidecar.
	RateLimited = &Failure{Code: "rate-limited", Status: 429, reason: link.RateLimited, Retry: RetryPaid,
		Text: "more requests a second than are allowed"}
	// BreakerOpen means that the service failed too often in a row. Find out why:
	// `remora_requests_total{outcome}`. The breaker closes after a successful probe.
	BreakerOpen = &Failure{Code: "breaker-open", Status: 503, reason: link.Overload, Retry: RetryPaid,
		Text: "the service has failed too often in a row"}
	// NoSlot means that a hedge would have had to wait. Callers nearly always get the response
	// of the first attempt instead.
	NoSlot = &Failure{Code: "no-slot", Status: 503, reason: link.NoSlot,
		Text: "no free slot for a hedge"}
	// Draining means that the sidecar is about to end. If callers see it often, let them
	// retry, or take the pod out of service earlier.
	Draining = &Failure{Code: "draining", Status: 503, reason: link.Draining, Retry: RetryFree,
		Text: "shutting down"}
	// Connect means that no endpoint accepts a connection within `connect_timeout`. Check the
	// application, the address and TLS; the log has the reason. At most 3 endpoints were
	// tried.
	Connect = &Failure{Code: "upstream-connect", Status: 502, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "cannot connect to the endpoint"}
	// GoAway means that several endpoints in a row closed their connection before they took
	// the request.
	GoAway = &Failure{Code: "upstream-goaway", Status: 502, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "the endpoint went away before it took the request"}
	// Refused means that endpoints of HTTP/2 refuse the request before they look at it
	// (REFUSED_STREAM), at each of 3 tries: they are overloaded, or about to end.
	Refused = &Failure{Code: "upstream-refused", Status: 503, reason: link.UpstreamConnect, Retry: RetryFree,
		Text: "the endpoint refused the request before it took it"}
	// Reset means that the connection was lost when the endpoint may have seen the request.
	// Look for crashes and limits of the application.
	// If repeating is harmless, set `idempotent: true`: then the request is retried elsewhere.
	Reset = &Failure{Code: "upstream-reset", Status: 502, reason: link.UpstreamReset, Retry: RetryIfIdempotent,
		Text: "the connection to the endpoint was lost"}
	// TryTimeout means that the last attempt had no response within `retry.per_try_timeout`. See
	// `deadline`.
	TryTimeout = &Failure{Code: "upstream-timeout", Status: 504, reason: link.UpstreamTimeout, Retry: RetryIfIdempotent,
		Text: "the endpoint did not answer in time"}
	// Malformed means that the response is neither HTTP nor Dubbo, or has ambiguous framing.
	// Check `protocol`, and what listens at that address.
	Malformed = &Failure{Code: "upstream-malformed", Status: 502, reason: link.UpstreamMalformed,
		Text: "the endpoint's answer is malformed"}
	// ResponseTooLarge means that the response is above `limits.message` and can't be a
	// stream. Raise the limit here and at the other sidecar.
	ResponseTooLarge = &Failure{Code: "response-too-large", Status: 502, reason: link.ResponseTooLarge,
		Text: "the endpoint's answer is larger than limits.message, and can't be passed on as a stream"}
	// Deadline means no response in time: `timeout`, or what the caller allows, is shorter than
	// the application takes, or replicas are frozen. See latency and `stalled` in `/endpoints`.
	Deadline = &Failure{Code: "deadline", Status: 504, reason: link.DeadlinePassed,
		Text: "no answer in time"}
	// Shed means that memory was a quarter above `limits.buffered`, and this request held the
	// most. Send fewer or smaller messages, or raise the limit.
	Shed = &Failure{Code: "shed", Status: 503, reason: link.Overload,
		Text: "memory is short, and this request took the most"}
	// Injected means that `fault.abort` of the route ended the request on purpose, with the status
	// that it says.
	Injected = &Failure{Code: "fault-injected", Status: 503,
		Text: "the route aborts some requests on purpose"}
	// NotCached means that the client wants a response from the cache alone (`only-if-cached`), and
	// there is none.
	NotCached = &Failure{Code: "not-cached", Status: 504,
		Text: "the response is not in the cache, and the client wants no other"}
	// Pipelined means that the client sends more than `limits.pipelined` requests without
	// waiting for responses.
	Pipelined = &Failure{Code: "too-many-pipelined", Status: 429,
		Text: "too many requests are pipelined on this connection"}
	// TooManyStreams means that `limits.streams` is reached, and no other source has clearly more
	// streams than the client's. Its oldest ones may end to make room for others.
	TooManyStreams = &Failure{Code: "too-many-streams", Status: 503, reason: link.Overload,
		Text: "too many streams are open"}
	// BodyTooSlow means that the client sends a body, or reads it, at less than
	// `timeouts.min_rate`.
	BodyTooSlow = &Failure{Code: "body-too-slow", Status: 408,
		Text: "the body moves too slowly"}
	// BadRequest means that the request can't be written safely for the application, such as a
	// CONNECT with a body.
	BadRequest = &Failure{Code: "bad-request", Status: 400, reason: link.Malformed, Retry: RetryUnsendable,
		Text: "the request can't be sent on safely"}
	// BadPath means that applications could read the path as different paths: an escaped slash,
	// a dot segment in disguise, or a malformed escape. See `listeners.*.path`.
	BadPath = &Failure{Code: "bad-path", Status: 400,
		Text: "the path is ambiguous"}
	// RequestTooLarge means that the request is above `limits.message` of the other sidecar.
	// Raise it at both. Longer bodies are streams over HTTP and links, but not over Dubbo.
	RequestTooLarge = &Failure{Code: "message-too-large", Status: 413, reason: link.TooLarge,
		Text: "the request is larger than the other sidecar takes"}
	// CallTooLarge means that the Dubbo call is above `limits.message`. Raise it at both
	// sidecars.
	CallTooLarge = &Failure{Code: "message-too-large", Status: 413,
		Text: "the call is larger than limits.message"}
	// SlowHead means that the header section took longer than `timeouts.header`: a slow or
	// broken client.
	SlowHead = &Failure{Code: "header-timeout", Status: 408,
		Text: "the request's head took too long"}
	// SlowBody means that the body took longer than `timeouts.body`: a slow or broken client.
	SlowBody = &Failure{Code: "body-timeout", Status: 408,
		Text: "the request's body took too long"}
	// Underscore means that the name of a header has an underscore, which `underscores: reject`
	// of the listener does not allow.
	Underscore = &Failure{Code: "header-underscore", Status: 400,
		Text: "the name of a header has an underscore"}
	// HTTP2Flood means that an HTTP/2 client exceeded one of `limits.http2` without a request in
	// return: it got a GOAWAY with ENHANCE_YOUR_CALM. The log and `remora_http2_errors_total{reason}`
	// say which. See where the client is from.
	HTTP2Flood = &Failure{Code: "http2-flood", Status: 429,
		Text: "the client sent too many frames of HTTP/2 without use"}
	// HTTP2Error means that a client broke the rules of HTTP/2, and its connection or stream ended
	// with an error. The log says how.
	HTTP2Error = &Failure{Code: "http2-error", Status: 400,
		Text: "the client broke the rules of HTTP/2"}
	// TLSNotServed means that the client began a TLS handshake with a listener without `tls`: it
	// got the alert handshake_failure. Let it use `http://`, or the port of a listener with `tls`.
	TLSNotServed = &Failure{Code: "tls-not-served", Status: 400,
		Text: "the client speaks TLS, and this listener plain text"}
	// NotConvertible means that a Dubbo call was routed to a service with `protocol: http`.
	NotConvertible = &Failure{Code: "not-convertible", Status: 501, reason: link.NoService, Retry: RetryUnsendable,
		Text: "the application speaks HTTP, and calls of Dubbo are not converted to it"}
	// Unsupported means a WebSocket, CONNECT or endless body where none can pass: CONNECT on a
	// listener with a fixed service, or any of them towards Dubbo.
	Unsupported = &Failure{Code: "not-supported", Status: 501, reason: link.NoService,
		Text: "this connection can't carry a stream"}
)

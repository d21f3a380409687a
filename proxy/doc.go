// Package proxy is the sidecar's core: what happens to a request between the
// bytes that come in and the bytes that go out. It does no I/O, starts no
// goroutine and never asks what time it is; a driver (proxy/reactor on real
// sockets, proxy/sim in tests) brings time and connections through Loop.
//
// The way of a request, one file per station:
//
//	downstream_http.go, downstream_link.go   bytes to Request
//	courtesy.go                              headers added and taken out
//	route.go                                 Request to service and policy
//	ratelimit.go, breaker.go                 what is turned away at once
//	exchange.go                              deadline, attempts, hedge timer
//	admission.go                             a slot of the service, or its queue
//	attempt.go, service.go                   pick an endpoint, send
//	upstream_http.go, upstream_link.go       attempt to bytes, bytes to answer
//	outcome.go                               winner, retry, or failure
//	downstream_http_reply.go                 Response to bytes
//	streams.go, downstream_http_leave.go     what leaves the loops, to proxy/stream
//	lease.go                                 a stream's place at a service; its bytes are proxy/stream's
package proxy

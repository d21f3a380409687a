// Package proxy wires the core of the sidecar together: processes, workers,
// configurations in use, listeners, and the one list of protocols. It holds no byte of
// a protocol and no decision about a request.
//
// The core does no I/O, starts no goroutine and never asks what time it is; a driver
// (proxy/reactor on real sockets, proxy/sim in tests) brings time and connections.
//
// The stations of a request, one folder each:
//
//	downstream/http, /http2, /link, /dubbo                   bytes to a request
//	downstream, forwarded                                    headers added and removed
//	route                                                    which route
//	exchange                                                 the phases, and the one response
//	allow, limit                                             who may pass
//	service                                                  endpoints, bounds, slots
//	filter/injection, /mirror, /fallback, /cache, /collapse  what a route adds
//	race                                                     attempts, retries, hedges
//	upstream/http, /http2, /link, /dubbo                     an attempt to bytes, bytes to a response
//	telemetry                                                counters, access log, spans
//	stream                                                   what leaves the loops
//
// In this package:
//
//	process.go            Process, which all loops share
//	protocols.go          the list of protocols
//	filters.go            the list of filters
//	worker.go             Worker, the part on one loop
//	generation.go         Generation, one configuration with what the loops share of it
//	generation_worker.go  the switch of one loop to a generation
//	generation_rules.go   the allow rules and rate limits of a generation
//	listener.go           Listener, one listener of the configuration
//	openers.go            the services of a loop for streams
//	shed.go               which connection ends when memory is short, or the process is overloaded
//	drain.go              the end of sessions
//	report.go             reports for the admin API
package proxy

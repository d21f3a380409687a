// Package proxy wires the core of the sidecar together: processes, workers,
// configurations in use, listeners, and the one list of protocols. It holds no byte of
// a protocol and no decision about a request.
//
// The core does no I/O, starts no goroutine and never asks what time it is; a driver
// (proxy/reactor on real sockets, proxy/sim in tests) brings time and connections.
//
// The stations of a request, one folder each:
//
//	downstream/http, /link, /dubbo  bytes to a request
//	downstream                      headers added and taken out
//	route                           which route
//	limit                           who may pass
//	exchange                        deadline, attempts, hedges, the one response
//	upstream/http, /link, /dubbo    an attempt to bytes, bytes to a response
//	telemetry                       counters, access log, spans
//	stream                          what leaves the loops
//
// In this package:
//
//	process.go     what all loops share
//	worker.go      one loop's part
//	protocols.go   the list of protocols
//	generation.go  a configuration in use; generation_worker.go on one loop
//	listener.go    a listener
//	leases.go      what streams ask of a loop
//	drain.go       the end of sessions
//	shed.go        which connection is closed when memory is short
//	report.go      what the admin API asks
package proxy

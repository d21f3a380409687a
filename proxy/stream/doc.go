// Package stream carries streams: bytes that are passed on while they arrive, without waiting
// for a complete message. A stream runs on two goroutines with the standard library. Their
// blocking reads and writes give backpressure from end to end, which the reactor lacks.
//
// The files:
//
//	server.go    the Server, which starts and ends all streams
//	listener.go  tcp listeners: they accept, count and refuse connections
//	proxied.go   connections that begin, or are begun, with a header of the PROXY protocol
//	accept.go    streams from another sidecar
//	end.go       one connection or pipe, and the counters of it
//	state.go     where a stream and its client stand
//	pair.go      the two connections of a stream, and how they end
//	head.go      input that is read before it is passed on, and its memory
//	connect.go   the connector, which finds an endpoint that takes the stream
//	unrouted.go  connects to the host that a request names
//	reach.go     which hosts that may be
//	tunnel.go    a stream of opaque bytes
//	pass.go      a redirected connection, passed to its original destination
//	hop.go       connections to original destinations, which must not lead back to this sidecar
//	relay.go     copies bytes both ways
//	request.go   an HTTP request and its response, both of any length
//	replay.go    sends a request to another endpoint if one refuses it
//	response.go  a response whose request was a message
//	down.go      endpoints that get no stream
//	park.go      responses that wait until another sidecar fetches them, also in the previous process
//	body.go      passes one body one way, strictly decoded and framed again
//	watch.go     ends a stream that is idle, too long or too slow
//
// Package pipe has the ends of streams that share a connection with others.
//
// The core picks endpoints and counts the streams (race.Stream).
package stream

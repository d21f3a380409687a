// Package stream carries what is no message: bytes that nobody
// waits for to be complete. Streams run on goroutines and the standard library, two to
// a stream, because blocking reads and writes bring backpressure from end to end
// and half-close for free, and the reactor's engine has neither.
//
// One file per duty:
//
//	server.go    what all streams share, and how they are ended
//	listener.go  tcp listeners: accepts, counts, refuses
//	accept.go    streams that another sidecar brings
//	end.go       one connection; what the kernel knows of it
//	pair.go      the two connections of a stream, and how they end
//	connect.go   finds an endpoint that takes the stream
//	tunnel.go    a stream of opaque bytes
//	pass.go      a redirected connection, to where it was going; hops.go: never in a circle
//	relay.go     bytes, both ways
//	request.go   an HTTP request and its answer, both of any length
//	answer.go    an answer whose request was a message
//	park.go      answers that wait for another sidecar to fetch them
//	body.go      one body, one way, strictly decoded and framed again
//	idle.go      ends what has stopped moving, a client that takes nothing too
//
// The core picks endpoints and keeps the accounts (exchange.Lease).
package stream

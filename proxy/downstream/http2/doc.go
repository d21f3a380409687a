// Package http2 serves connections of HTTP/2 that a listener of HTTP has accepted. Each request is an
// exchange of its own, as on a link, and its response is sent when it comes.
//
//	session.go    a connection: input, output, its end
//	state.go      the state of a session
//	call.go       a request: what the codec receives of it
//	reply.go      its response
//	stream.go     a request or response that becomes a stream: the pipe to its goroutine
//	timeout.go    what must not take too long
//	keepalive.go  whether the client is still there
//	shed.go       memory
package http2

// Package http2 serves HTTP/2 connections that an HTTP listener has accepted. Each request is an
// exchange of its own, as on a link, and its response is sent when it comes. A session has five parts. Each is a type
// whose comment says its job, and which calls go in and out:
//
//	input.go   input: makes requests of what the codec receives
//	calls.go   calls: the requests of the connection, their responses, and what must not take too long
//	output.go  output: sends what the codec has
//	ending.go  ending: drains the connection, and ends it
//	memory.go  memory: counts what the connection holds, and drops the largest call
//
// What they work on, and what joins them:
//
//	call.go       a request and its response
//	stream.go     a request or response that becomes a stream: the pipe to its goroutine
//	session.go    the connection: its events
//	state.go      the states of a session and of a call
//	keepalive.go  whether the client is still there
package http2

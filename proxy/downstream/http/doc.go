// Package http serves downstream HTTP/1.1 connections. A session has seven parts. Each is a type whose comment
// says its job, and which calls go in and out. Four of them have no fields: what they know is in incoming, the request
// that is being received or waits to leave.
//
//	input.go        input: makes requests of bytes; undecoded.go has the bytes that are no request yet
//	timeouts.go     timeouts: bounds how long the session waits for its client
//	expectation.go  expectation: sends 100 Continue
//	turn.go         turn: processes requests one after another, and writes their responses
//	leaving.go      leaving: takes the connection off the loop with a request or response that is no message; direct.go
//	                has requests that no route takes
//	tunnel.go       tunnel: accepts a CONNECT that may carry requests
//	redirect.go     redirect: passes a redirected connection on to its original destination
//
// A session ends in one of these ways, the gentlest first:
//
//	Retire     the next response is the last, and says so
//	Drain      the same, but an idle connection closes
//	CloseIdle  an idle connection closes, others stay
//	close      the request in flight is cancelled, and later ones are dropped; the caller closes the connection
//	CloseNow   the connection closes, too, and nobody learns of the response
//
// What joins the parts:
//
//	session.go  the connection: its events, its end, its memory
//	http2.go    the switch to an HTTP/2 session
//	host.go     what the sessions of a loop share, and what a session has only while it receives a request
//	state.go    the states of input and turn
package http

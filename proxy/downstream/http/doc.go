// Package http serves downstream HTTP/1.1 connections. A session has ten parts. Each is a type whose comment
// says its job, and which calls go in and out. Seven of them have no fields: what they know is in incoming, the request
// that is being received or waits to leave, or in other parts.
//
//	input.go        input: makes requests of bytes; undecoded.go has the bytes that are no request yet
//	timeouts.go     timeouts: bounds how long the session waits for its client
//	expectation.go  expectation: sends 100 Continue
//	turn.go         turn: processes requests one after another, and writes their responses
//	leaving.go      leaving: takes the connection off the loop with a request or response that is no message; direct.go
//	                has requests that no route takes
//	tunnel.go       tunnel: accepts a CONNECT that may carry requests
//	redirect.go     redirect: passes a redirected connection on to its original destination
//	http2.go        switching: gives the connection to a session of HTTP/2
//	ending.go       ending: ends the connection
//	memory.go       memory: counts what the connection holds
//
// A session ends in one of these ways, the gentlest first:
//
//	retire         the next response is the last, and says so
//	drain          the same, but an idle connection closes
//	closeIdle      an idle connection closes, others stay
//	drainAndClose  the connection closes behind what was written; the request in flight is cancelled, later ones are dropped
//	close          the same, but the caller closes the connection, or gives it away
//	closeNow       the connection closes, and nobody learns of the response
//
// What joins the parts:
//
//	session.go  the connection: its events
//	host.go     what the sessions of a loop share, and what a session has only while it receives a request
//	state.go    the states of input and turn
package http

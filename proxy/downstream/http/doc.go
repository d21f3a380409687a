// Package http serves downstream HTTP/1.1 connections. A session has five parts. Each is a type whose comment says
// its job, and which calls go in and out:
//
//	input.go    input: makes requests of bytes
//	turn.go     turn: processes requests one after another, and writes their responses
//	leaving.go  leaving: takes the connection off the loop with a request or response that is no message; direct.go
//	            has requests that no route takes
//	tunnel.go   tunnel: accepts a CONNECT that may carry requests
//	redirect.go redirect: passes a redirected connection on to its original destination
//
// What joins them:
//
//	session.go  the connection: its events, its end, its memory
//	http2.go    the switch to a session of HTTP/2
//	host.go     what the sessions of a loop share, and what a session has only while it receives a request
//	state.go    the states of input and turn
package http

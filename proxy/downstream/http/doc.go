// Package http serves downstream HTTP/1.1 connections. A session has three parts. Each is a type whose comment says
// its job, and which calls go in and out:
//
//	input.go    input: makes requests of bytes
//	turn.go     turn: processes requests one after another, and writes their responses
//	leaving.go  leaving: takes the connection off the loop with a request or response that is no message
//	tunnel.go   the same, for a CONNECT that may carry requests
//	pass.go     the same, for redirected connections and those of HTTP/2
//
// What joins them:
//
//	session.go  the connection: its events, its end, its memory
//	host.go     what the sessions of a loop share, and what a session has only while it receives a request
//	state.go    the states of input and turn
package http

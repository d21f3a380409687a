// Package http reaches endpoints by HTTP/1.1.
//
//	pool.go      the attempts at one endpoint: each gets a connection, or waits for one
//	dials.go     dials: opens connections
//	idle.go      idleConns: those without a request
//	conn.go      one connection: one request at a time
//	state.go     the states of a connection
//	keeping.go   how long the server surely keeps an idle connection
//	unwanted.go  unawaited: a response that nobody awaits
//	leaving.go   leaving: a response that turns out to be a stream
package http

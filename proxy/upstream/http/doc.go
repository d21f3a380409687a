// Package http reaches endpoints by HTTP/1.1.
//
//	pool.go      the connections to one endpoint, and the attempts that wait for one
//	conn.go      one connection: one request at a time
//	state.go     the states of a connection
//	keeping.go   how long the server surely keeps an idle connection
//	unwanted.go  a response that nobody awaits
//	stream.go    a response that turns out to be a stream
package http

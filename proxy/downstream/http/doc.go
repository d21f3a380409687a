// Package http is a downstream HTTP/1.1 connection.
//
//	session.go  input: bytes to requests, in order
//	reply.go    starts requests one after another, and writes their responses
//	handoff.go  a request that leaves the loop with its connection
//	stream.go   a response that does
//	pass.go     a redirected connection that goes on to where it was going
//	shed.go     how much memory the connection holds, and giving it up
package http

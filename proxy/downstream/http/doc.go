// Package http serves downstream HTTP/1.1 connections.
//
//	session.go     input: decodes requests, in order
//	reply.go       output: begins requests one after another, and writes their responses
//	state.go       the states of input and output
//	host.go        what a session has only while it receives a request, and its timeouts
//	handoff.go     requests and responses that leave the loop with their connection
//	half_close.go  clients that have ended their side
//	pass.go        redirected connections that go on to their original destination
//	shed.go        the memory that the connection holds, and closing it for that
package http

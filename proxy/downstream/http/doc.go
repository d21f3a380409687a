// Package http serves downstream HTTP/1.1 connections.
//
//	session.go  input: decodes requests, in order
//	reply.go    output: begins requests one after another, and writes their responses
//	state.go    the states of input and output
//	handoff.go  requests that leave the loop with their connection
//	stream.go   responses that leave the loop with their connection
//	pass.go     redirected connections that go on to their original destination
//	shed.go     the memory that the connection holds, and closing it for that
package http

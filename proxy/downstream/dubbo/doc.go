// Package dubbo serves downstream Dubbo connections. Of a call's body it reads only what
// routing needs; the bytes pass unchanged. A session has five parts. Each is a type whose comment says its job, and
// which calls go in and out:
//
//	input.go   input: makes calls of frames, and answers heartbeats
//	calls.go   calls: the calls of the connection, and their responses
//	output.go  output: writes the frames of a turn together
//	ending.go  ending: drains the connection, which the read-only event begins, and ends it
//	memory.go  memory: counts what the connection holds, and drops the largest call
//
// What joins them:
//
//	session.go  the connection: its events
//	state.go    the states of ending
package dubbo

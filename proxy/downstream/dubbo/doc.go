// Package dubbo serves downstream Dubbo connections. Of a call's body it reads only what
// routing needs; the bytes pass unchanged.
//
//	session.go  calls, heartbeats, the read-only event of a drain
//	reply.go    responses
//	state.go    the states of a session
//	holder.go   the memory that the connection holds, and dropping the largest call
package dubbo

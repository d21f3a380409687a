// Package dubbo is a downstream Dubbo connection. Bodies of calls are passed on unread.
//
//	session.go  calls, heartbeats, the read-only event of a drain
//	reply.go    responses
//	shed.go     how much memory the connection holds, and giving up its largest call
package dubbo

// Package shard is what one loop lends to those who work on it. A shard shares nothing
// with the others but the few atomics of Process, so a request's way takes no lock.
//
//	shard.go     Shard and Process
//	budget.go    the memory budget (limits.buffered) and each connection's share
//	buffers.go   how much memory is kept for the next long message
//	outbound.go  the sending side of a connection, and its write timeout
//	log.go       a log that peers can't fill
//	date.go      the Date of messages
//
// It knows no service, no session, no route and no wire format.
package shard

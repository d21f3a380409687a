// Package shard is the part of the process that belongs to one loop. Shards share only
// the few atomics of Process, so a request takes no lock.
//
//	shard.go     Shard and Process
//	buffers.go   the memory kept for the next long message
//	account.go   what a connection counts against the budget
//	budget.go    the memory budget (limits.buffered) and each connection's share
//	date.go      the Date header of messages
//	outbound.go  the sending side of a connection, and its write timeout
//	log.go       a log that peers can't fill
//
// It knows no service, no session, no route and no wire format.
package shard

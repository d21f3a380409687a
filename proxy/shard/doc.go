// Package shard is the part of the process that belongs to one loop. Shards share only
// the few atomics of Process, so a request takes no lock. Counters belong to a loop; who wants
// their sum asks each loop. Bytes are the exception, since their bound is that of the process:
// a loop counts in Shard.Uncounted, and adds to Process.Budget once that is worth an atomic.
//
// Who counts which bytes against limits.buffered:
//
//	Account       a connection's messages that have arrived in part, frames that wait to be sent
//	TableAccount  likewise, and the tables of its codec
//	Outbound      output that a peer has not taken yet
//	Recount       anything else: requests in exchanges, responses, what filters keep
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

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
//	client.go    who a request came from; failures.go what the log says of requests that fail
//	account.go   what a connection counts against the budget; tables.go the tables of codecs
//	budget.go    the memory budget (limits.buffered) and each connection's share; holder.go who holds much
//	buffers.go   the memory kept for the next long message; freelist.go that of other values
//	memory.go    the text of a response that several share
//	stamps.go    when targets of requests were invalidated, for the caches of all loops
//	outbound.go  the sending side of a connection, and its write timeout
//	date.go      the Date header of messages
//	log.go       a log that peers can't fill
//
// It knows no service, no connection of a protocol, no route and no wire format.
package shard

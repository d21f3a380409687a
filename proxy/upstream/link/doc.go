// Package link reaches endpoints that have a sidecar.
//
//	upstream.go  one endpoint on one loop: one link, dialled on first use
//	conn.go      client: the dialling end of a link
//	calls.go     calls: the attempts in flight on a link; start.go has which of them wait at the endpoint, for
//	             tied hedges, and stream.go responses whose body must be fetched
//	probe.go     asking for the load
//	holder.go    dropping the response that holds the most memory
package link

// Package link reaches endpoints that have a sidecar.
//
//	upstream.go  one endpoint on one loop: one link, dialled on first use
//	conn.go      the dialling end of a link
//	start.go     whether a request waits at the endpoint: for tied hedges
//	probe.go     asking for the load
//	stream.go    a response whose body must be fetched
//	holder.go    dropping the response that holds the most memory
package link

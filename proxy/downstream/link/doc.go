// Package link is the accepting end of a link, over which another sidecar sends requests for
// the service of a listener.
//
//	session.go  requests, cancellations, responses, GOAWAY
//	stream.go   connections that become a stream, and response bodies that wait for a fetch
//	holder.go   the memory that the link holds, and dropping the largest request
package link

// Package link is the accepting end of a link: another sidecar's requests for the
// service of a listener.
//
//	session.go  requests, cancellations, responses, GOAWAY
//	stream.go   streams: a connection that becomes one, and bodies that wait for a fetch
//	shed.go     how much memory the link holds, and giving up its largest request
package link

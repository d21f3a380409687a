// Package downstream is what all sessions share. A session is a connection that came in:
// it decodes requests, begins exchanges and encodes responses. There is a folder for
// each protocol.
//
//	host.go     what a loop lends to its sessions; Acceptor
//	session.go  Session, and the list of a loop's sessions
//	headers.go  headers that a request is given or loses where it enters
//	failure.go  responses of the sidecar's own
//	streams.go  the contract with proxy/stream, which carries what leaves the loops
//
// It never knows an upstream.
package downstream

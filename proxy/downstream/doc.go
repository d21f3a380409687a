// Package downstream has what all sessions share. A session is an accepted connection: it
// decodes requests, begins exchanges and encodes responses. Each protocol has a folder.
//
//	host.go         what the sessions of a loop share; Acceptor
//	sessionlist.go  the list of a loop's sessions; idle.go the idle ones
//	findroute.go    what is done to a request until it has its route: headers, path, route, edits
//	headers.go      headers that are added to a request, or removed, where it enters
//	edits.go        hosts and headers that a route changes
//	failure.go      responses that the sidecar makes itself
//	input.go        what can be told of input that is no request
//	streams.go      the contract with proxy/stream, which carries streams off the loops; streamrequest.go what a stream begins with
//
// It knows no upstream.
package downstream

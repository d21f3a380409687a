// Package link is the accepting end of a link, over which another sidecar sends requests for
// the service of a listener. Package linkconn sends the frames. A session has five parts. Each is a type whose comment
// says its job, and which calls go in and out:
//
//	input.go    input: takes requests and CANCELs from the reader
//	calls.go    calls: the requests of the link, and their responses
//	leaving.go  leaving: takes the connection off the loop with a stream
//	ending.go   ending: drains the link, and ends it
//	memory.go   memory: what the link holds, and dropping the largest request
//
// What joins them:
//
//	session.go  the link: its events
package link

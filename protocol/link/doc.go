// Package link implements version 1 of the link protocol, which two sidecars speak over one
// TCP connection. It encodes, decodes and schedules frames without a socket, a clock or a
// goroutine. README.md is the specification. The vectors in testdata are part of
// it and run as tests.
//
// On the consumer's side a link is the upstream, and on the provider's side the downstream.
// The side that dialled sends requests; the side that accepted sends responses. This package
// knows neither endpoints nor routes.
//
// The life of a connection:
//
//	w.Preface(role, settings)             // both sides, at once
//	r.Feed(b)                             // calls Handler.OnPreface(version, peer)
//	w.Open(version, peer)                 // in OnPreface: frames may leave from now on
//	w.Request(id, req, ttl, owner) ...    // also before Open: the request waits
//	b, parts = w.Gather(b, parts, budget) // at the end of a turn, while w.Ready(): what must leave,
//	w.Sent()                              // and after it has left
//	w.Credit(r.TakeConsumed())            // after each Feed
//	w.Close(); r.Close()                  // releases owners and buffers
//
//	writer.go     Writer: what is to be sent; send.go the order in which it leaves
//	controls.go   control frames that wait to leave; queue.go messages, scheduler.go the DATA of long ones,
//	              outgoing.go a long one, lanes.go their order
//	reader.go     Reader: bytes to frames, partial.go the frames that have arrived in part; dispatch.go what each does
//	assembly.go   messages in reassembly; decoder.go complete ones
//	handler.go    Handler, who gets what the Reader decodes
//	frame.go      frames, their headers and types; control.go those without a message, reason.go why a request ends
//	preface.go    the versions and settings with which each side begins; stream.go a connection that carries one stream
//	request.go    the head of a request, response.go of a response; headers.go their headers, cursor.go reads them
//	intern.go     texts that are sent once; text.go what a text may be used for
//	errors.go     why a link must be closed
package link

// Package http2 implements HTTP/2 (RFC 9113) with HPACK (RFC 7541): a Conn gets the received
// bytes, calls its Handler, and returns the bytes to send. It has no socket, no clock and no
// goroutine. In the steady state a message allocates nothing.
//
// A message is an HTTP message with the semantics of package protocol. What the decoder passes
// on is safe to write as HTTP/1.1: field names are tokens, values have no control characters,
// the target begins with "/" or is "*", and the authority is a host without user information.
//
// The life of a connection:
//
//	c.InitServer(&options, handler)      // SETTINGS are queued. InitClient also queues the preface
//	err := c.Feed(b)                     // calls the handler
//	c.Respond(st, res, owner) ...        // in the calls of the handler, or later
//	conn.Write(c.Output(64 << 10))       // at the end of a turn, while c.Ready()
//	c.Close()                            // releases owners and memory
//
// What a user of the package sees:
//
//	conn.go      Conn: its life, its parts, its memory
//	handler.go   what a server and a client receive
//	stream.go    Stream: one request with its response; its states
//	send.go      what a user sends: requests, responses and bodies
//	limits.go    Options, and the bounds of this package
//	floods.go    limits of what a peer may do without useful work
//	errors.go    codes and errors
//
// The way of a frame in:
//
//	frame.go     frame headers, and frames without a payload of their own
//	reader.go    reader: finds frames in the received bytes
//	heads.go     heads: HEADERS and CONTINUATION become heads and trailers
//	decoder.go   headDecoder: decodes a header block in bounded memory
//	head.go      head: the rules for the fields of a head
//	fields.go    the rules for names and values; fields with a meaning for the codec
//	data.go      bodies: DATA, and the receive windows
//	settings.go  settings: those of the peer
//	windows.go   windows: WINDOW_UPDATE
//	pings.go     pings: PING, of both sides
//	table.go     streams: the table of a connection
//	ends.go      how a stream ends; RST_STREAM and PRIORITY
//
// The way out:
//
//	messages.go  messages: whole or in pieces
//	writer.go    writer: DATA within the send windows
//	output.go    output: the order of frames; those that are neither HEADERS nor DATA
//	encode.go    heads and trailers as HEADERS
//	goodbye.go   goodbye: GOAWAY, of both sides
//	acks.go      acks: our SETTINGS that the peer has not acknowledged
package http2

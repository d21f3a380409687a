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
//	c.InitServer(&options, handler)      // SETTINGS are queued; InitClient: the preface, too
//	err := c.Feed(b)                     // calls the handler
//	c.Respond(st, res, owner) ...        // in the calls of the handler, or later
//	conn.Write(c.Output(64 << 10))       // at the end of a turn, while c.Ready()
//	c.Close()                            // releases owners and memory
package http2

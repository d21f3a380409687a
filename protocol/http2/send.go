package http2

import "github.com/remora-proxy/remora/protocol"

// Output returns the frames to write now: all control frames and HEADERS, and DATA as the
// windows allow, until there are about max bytes. The memory belongs to c and is valid until the
// next call of a method of c. nil: there is nothing.
func (c *Conn) Output(max int) []byte {
	if c.state == connClosed {
		return nil
	}
	if c.usable() {
		c.w.send(max)
		c.messages.events()
	}
	c.floods.onData(c.w.frames, c.w.sent)
	out := c.w.take()
	if len(out) == 0 {
		return nil
	}
	return out
}

// Ready reports whether Output would return something, or make a call.
func (c *Conn) Ready() bool {
	switch c.state {
	case connFailed:
		return len(c.w.out) > 0
	case connClosed:
		return false
	}
	return c.w.ready()
}

// Request sends a whole request and returns its stream; nil if MayOpen returns 0, and then owner
// is not released. The head is encoded at once. Body and Trailers are kept until they are sent:
// then owner is released, as it is when the stream is over. With a nil owner the caller keeps the
// memory until the stream is over, OnSent, or Keep.
//
// Fields of a connection are left out. A Content-Length is added if there is a body. Methods such as POST
// (protocol.DefinesContent) get a Content-Length also without a body. No Content-Length is added if there are trailers, or if
// the content is gRPC. `te: trailers` must be among the Headers where it is wanted.
func (c *Conn) Request(req *protocol.Request, scheme string, owner Releaser) *Stream {
	return c.messages.request(req, scheme, owner)
}

// Keep copies what is unsent of a message whose memory the caller keeps, so that the caller may release that memory.
func (c *Conn) Keep(st *Stream) { c.messages.keep(st) }

// Respond sends the whole response of st, to a request with HEAD without its body. It may not
// follow ResponseHead or Respond. Ownership is as in Request.
func (c *Conn) Respond(st *Stream, res *protocol.Response, owner Releaser) {
	c.messages.respond(st, res, owner)
}

// RequestHead sends the head of a request whose body follows with Send and Finish. length is
// its declared length, or -1. wait says that the body waits for an interim response
// (Expect: 100-continue). It returns nil if MayOpen returns 0.
func (c *Conn) RequestHead(req *protocol.Request, scheme string, length int64, wait bool) *Stream {
	return c.messages.requestHead(req, scheme, length, wait)
}

// ResponseHead sends the head of a response whose body follows with Send and Finish; its
// DeclaredLength becomes the Content-Length unless negative.
func (c *Conn) ResponseHead(st *Stream, res *protocol.Response) {
	c.messages.responseHead(st, res)
}

// Interim sends an interim response (1xx but 101), ahead of the final head. After the final head it
// does nothing.
func (c *Conn) Interim(st *Stream, res *protocol.Response) {
	c.messages.interim(st, res)
}

// Send copies a piece of the body: as much as a bound for each stream allows. If n is less than
// len(b), OnWritable says when to go on.
func (c *Conn) Send(st *Stream, b []byte) (n int) {
	return c.messages.send(st, b)
}

// Finish ends our side after what Send took. trailers may be empty; they are copied if needed.
func (c *Conn) Finish(st *Stream, trailers []protocol.Header) {
	c.messages.finish(st, trailers)
}

package http2

import (
	"errors"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
)

// errReset fails the pipe of a stream that the endpoint, or a lost connection, has ended.
var errReset = errors.New("proxy: the endpoint has reset the stream")

// flow is a stream that a goroutine reads. In a tunnel it also writes.
type flow struct {
	call   *call // nil once it is over
	pipe   loop.Pipe
	to     httpstream.Writer // the endpoint's message, for the goroutine
	tunnel *tunnel           // that the flow is of; nil for a response alone
}

// becomeStream passes the response to its attempt as a stream. ended says that all of it has arrived. The memory of
// the request goes with the attempt, so what is unsent of the request is copied: it is still sent, as the endpoint may
// not go on with an incomplete response before it has more of the request. The copy lasts until the endpoint has taken all
// of it, or the stream has ended: timeouts.idle and timeouts.stream bound that, and no longer the deadline of the request.
func (s *call) becomeStream(ended bool) {
	c, res := s.c, s.response
	if !c.shard.Process.Streams {
		s.drop(fault.ResponseTooLarge) // it is too long for a message, and can't be a stream
		return
	}
	if !s.sent && !ended {
		c.h2.Keep(s.st)
		c.recount()
	}
	forgetLength(&res.Response)
	f := &flow{call: s}
	pipe, socket := c.shard.NewPipe(c.transport.RemoteAddr(), f.ready)
	f.pipe = pipe
	head := res.StreamHead()
	f.to.Init(pipe, head.Framing == http1.Chunked)
	src := &race.StreamSource{
		Socket: socket, Addr: c.pool.endpoint.LB.Addr, Service: c.pool.service.Config.Name,
		Buffer: res.BodyBuffer, Stream: s.attempt.NewStream(),
		Interactive: protocol.Interactive(res.Headers),
	}
	src.Body.Reset(&head, c.shard.UnlimitedBody)
	src.Body.Resume(s.size)
	if ended {
		f.to.End(nil)
	}
	res.BodyBuffer.B = res.BodyBuffer.B[:s.size]
	res.Source, res.BodyBuffer = src, nil
	res.Receive(protocol.MinorHTTP2)
	s.response = nil
	s.dropResponse()
	if !s.sent {
		c.unsent--
	}
	a := s.attempt
	s.attempt, s.flow = nil, f
	a.Detach()
	if ended {
		f.finish()
	}
	res.Charge()
	a.Respond(res)
}

// forgetLength makes the length of a body unknown if trailers may follow. The text in a pipe is
// that of HTTP/1.1, where only chunks have trailers. Servers of net/http send both with gRPC.
func forgetLength(res *protocol.Response) {
	if protocol.Interactive(res.Headers) || protocol.Find(res.Headers, "trailer") != nil {
		res.DeclaredLength = -1
	}
}

// ready is called when the goroutine has read or written, or has closed its end.
func (f *flow) ready() {
	s := f.call
	if s.c == nil {
		f.tunnel.place()
		return
	}
	c := s.c
	if st := f.pipe.State(); st == loop.PipeReset || st == loop.PipeClosed {
		s.reset(http2.Cancel)
		f.close(nil)
		return
	}
	if n := f.to.Taken(); n > 0 {
		c.h2.Consumed(s.st, n)
		if c.h2.Ready() {
			c.shard.Loop.Defer(&c.out)
		}
	}
	if f.tunnel != nil {
		f.tunnel.pump()
	}
}

// onBody passes a part of the body on. The endpoint's window is opened again as it is read.
func (f *flow) onBody(b []byte, end bool) {
	f.to.Data(b)
	if end {
		f.onEnd(nil)
	}
}

// onEnd ends the endpoint's message.
func (f *flow) onEnd(trailers []protocol.Header) {
	f.to.End(trailers)
	f.finish()
}

// finish ends a stream whose response is complete.
func (f *flow) finish() {
	f.call.endRequest()
	f.pipe.End()
	f.close(nil)
}

// fail ends a stream for the reason why. If the endpoint has done nothing with its request, the goroutine learns that:
// it may send it again.
func (f *flow) fail(why *fault.Failure) {
	if t := f.tunnel; t != nil && !t.responded && why.Free() {
		f.close(fault.Error{Failure: why})
		return
	}
	f.close(errReset)
}

// close closes the pipe with err, and ends the call.
func (f *flow) close(err error) {
	s := f.call
	c := s.c
	f.call = nil
	f.pipe.Close(err)
	if f.tunnel != nil {
		f.tunnel.releaseHead(c.shard)
	}
	s.detach()
	c.onFree()
}

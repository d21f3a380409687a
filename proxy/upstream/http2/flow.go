package http2

import (
	"errors"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// errReset fails the pipe of a stream that the endpoint, or a lost connection, has ended.
var errReset = errors.New("proxy: the endpoint has reset the stream")

// flow is a stream that a goroutine reads, and in a tunnel also writes.
type flow struct {
	call *call
	pipe loop.Pipe
	to   httpstream.Writer // the endpoint's message, for the goroutine

	*tunnel // nil for a response alone
}

// becomeStream passes the response to its attempt as a stream. ended says that all of it has arrived. An
// incomplete one waits until all of its request is sent, whose memory goes then.
func (s *call) becomeStream(ended bool) {
	c, res := s.c, s.response
	switch {
	case !c.shard.Process.Streams && s.tooLong():
		s.drop(fault.ResponseTooLarge) // it is too long for a message, and can't be a stream
		return
	case !c.shard.Process.Streams:
		return
	case !s.sent && !ended:
		s.streams = true
		return
	}
	forgetLength(&res.Response)
	f := &flow{call: s}
	pipe, socket := c.shard.NewPipe(c.transport.RemoteAddr(), f.ready)
	f.pipe = pipe
	head := res.StreamHead()
	f.to.Init(pipe, head.Framing == http1.Chunked)
	src := &race.StreamSource{
		Socket: socket, Addr: c.pool.endpoint.LB.Addr, Service: c.pool.service.Config.Name,
		Buffer: res.BodyBuffer, Stream: race.AdoptStream(c.pool.service, c.pool.endpoint.LB),
		Interactive: protocol.Interactive(res.Headers),
	}
	src.Body.Reset(&head, c.shard.UnlimitedBody)
	src.Body.Resume(s.size)
	if ended {
		f.to.End(res.Trailers)
	}
	res.BodyBuffer.B = res.BodyBuffer.B[:s.size]
	res.Source, res.BodyBuffer, res.Trailers = src, nil, res.Trailers[:0]
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
		s.finishFlow()
	} else {
		c.h2.Consumed(s.st, s.owed)
		c.shard.Loop.Defer(&c.out)
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
	switch {
	case s == nil: // over
		return
	case f.tunnel != nil && s.c == nil:
		s.placeTunnel()
		return
	}
	c := s.c
	if st := f.pipe.State(); st == loop.PipeReset || st == loop.PipeClosed {
		s.reset(http2.Cancel)
		s.leaveFlow(nil)
		c.shard.Loop.Defer(&c.out)
		return
	}
	if n := f.to.Taken(); n > 0 && s.st != nil {
		c.h2.Consumed(s.st, n)
		if c.h2.Ready() {
			c.shard.Loop.Defer(&c.out)
		}
	}
	if f.tunnel != nil {
		s.pump()
	}
}

// onFlowBody passes a part of the body on. The endpoint's window is opened again as it is read.
func (s *call) onFlowBody(b []byte, end bool) {
	s.flow.to.Data(b)
	if end {
		s.onFlowEnd(nil)
	}
}

// onFlowEnd ends the endpoint's message.
func (s *call) onFlowEnd(trailers []protocol.Header) {
	s.flow.to.End(trailers)
	s.finishFlow()
}

// finishFlow ends a stream whose response is complete.
func (s *call) finishFlow() {
	s.endRequest()
	s.flow.pipe.End()
	s.leaveFlow(nil)
}

// endFlow ends a stream that has failed with f. If the endpoint has done nothing with its request, the
// goroutine learns that: it may send it again.
func (s *call) endFlow(f *fault.Failure) {
	if t := s.flow.tunnel; t != nil && !t.responded && f.Free() {
		s.leaveFlow(fault.Error{Failure: f})
		return
	}
	s.leaveFlow(errReset)
}

// leaveFlow closes the pipe with err, and ends the call.
func (s *call) leaveFlow(err error) {
	c, f := s.c, s.flow
	f.call = nil
	f.pipe.Close(err)
	if f.tunnel != nil {
		f.releaseHead(c.shard)
	}
	s.detach()
	c.onFree()
}

// tunnel is what a stream has whose request comes by the pipe, too.
type tunnel struct {
	pool   *pool
	secure *secure           // that has the pool for the request's Host; nil without TLS
	by     shard.Client      // of secure: who the request came from
	from   httpstream.Reader // the request
	began  bool              // its head has arrived
	opened bool              // the pipe is open
	toHead bool
	waits  time.Duration // since when it waits for room, on the loop's clock
	res    protocol.Response
	text   *bytebufferpool.ByteBuffer // of its head, while that is decoded and passed on

	responded bool // a head has begun to arrive
}

// newResponse provides the memory for the head of a response.
func (f *flow) newResponse(on *shard.Shard) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	t := f.tunnel
	t.responded, t.text = true, on.Buffers.Get(0)
	return &t.res, t.text
}

// releaseHead gives the memory of a head back that was passed on, or will not be.
func (t *tunnel) releaseHead(on *shard.Shard) {
	t.res = protocol.Response{}
	on.Buffers.Release(&t.text)
}

// onFlowHead passes the head of a response on.
func (s *call) onFlowHead(end bool) {
	f := s.flow
	if !end {
		forgetLength(&f.res)
	}
	sent := f.to.Response(&f.res, f.toHead, end)
	f.releaseHead(s.c.shard)
	switch {
	case !sent:
		s.reset(http2.Cancel)
		s.leaveFlow(errReset)
	case end:
		s.onFlowEnd(nil)
	}
}

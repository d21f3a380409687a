package http2

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/httpstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// pipe joins an HTTP/2 stream with the goroutine that has its request, or its response.
type pipe struct {
	call     *call
	end      loop.Pipe
	writer   httpstream.Writer
	reader   httpstream.Reader
	receives bool // the request is still coming
	grpc     bool // the caller gets failures as a status
	ended    bool // the response has ended, one way or the other
}

// open makes the pipe of a call. The caller passes the socket on.
func (c *call) open(toHead, grpc bool) loop.Socket {
	s := c.session
	p := &pipe{call: c, grpc: grpc}
	end, socket := s.host.NewPipe(s.conn.RemoteAddr(), p.ready)
	p.end = end
	p.reader.InitResponse(end, s.heads, toHead)
	c.pipe = p
	c.become(streaming)
	return socket
}

// closePipe closes the pipe of a call that is over.
func (c *call) closePipe() {
	if p := c.pipe; p != nil {
		c.pipe = nil
		p.end.Close(nil)
	}
}

// leave makes a request that is incomplete a stream: its body follows while it arrives.
func (c *call) leave() {
	s, ex := c.session, c.ex
	if !s.host.Process.Streams {
		c.refuse(fault.OfRequest(http1.ErrMessageTooLarge))
		return
	}
	checks := ex.Checks(s.origin.Listener)
	if !ex.HeadChecked() && checks.Head(s.host.FindRoute(ex, &s.origin, protocol.ViaHTTP2)) {
		c.begin()
		return
	}
	f := c.checkProcess()
	if f == nil {
		f = checks.InTime()
	}
	if f != nil {
		c.refuse(f)
		return
	}
	r := c.streamRequest()
	c.ex = nil
	socket := c.open(r.ToHead, r.GRPC)
	c.pipe.receives = true
	c.pipe.writer.Init(c.pipe.end, r.Chunks)
	s.host.Pool.Recycle(ex)
	s.host.Stats.Handoffs[stats.StreamBody]++
	s.host.Streams.Request(socket, r)
}

// checkProcess returns why the process lets no request leave the loop now, or nil.
func (c *call) checkProcess() *fault.Failure {
	return exchange.Process(c.session.host.Process, c.session.memory.messages()+c.ex.Held, false)
}

// streamRequest returns the request of c as one that owns its memory.
func (c *call) streamRequest() *downstream.StreamRequest {
	s, ex := c.session, c.ex
	r := s.host.StreamRequest(stats.StreamBody, &s.calls, ex, &s.origin)
	head := http1.Head{Framing: http1.Chunked, ExpectContinue: c.stream.ExpectsContinue()}
	trails := protocol.Find(ex.Request.Headers, "trailer") != nil // only chunks have trailers in the text of a pipe
	if n := c.stream.Length(); n >= 0 && !trails {
		head.Framing, head.Length = http1.FixedLength, n
	}
	r.Head = http1.AppendStreamRequest(nil, &ex.Request, &head)
	r.Minor, r.ToHead, r.Chunks = 1, string(ex.Request.Method) == "HEAD", head.Framing == http1.Chunked
	r.Continue = head.ExpectContinue
	r.Body.Reset(&head, s.host.UnlimitedBody)
	if ex.BodyBuffer == nil {
		ex.BodyBuffer = s.host.Buffers.Get(0)
	}
	r.Body.Resume(len(ex.BodyBuffer.B))
	r.Buffer, ex.BodyBuffer = ex.BodyBuffer, nil
	return r
}

// respondStream responds with a body that is a stream. The head is in the loop's scratch memory.
func (c *call) respondStream(res *race.Response) {
	s := c.session
	grpc := protocol.IsGRPC(res.Headers)
	a := s.host.StreamAnswer(&s.calls, res, 1)
	socket := c.open(false, grpc)
	s.host.Stats.Handoffs[stats.HandoffAnswer]++
	s.host.Streams.Answer(socket, a)
}

// data passes a piece of the request on.
func (p *pipe) data(b []byte, end bool) {
	p.writer.Data(b)
	if end {
		p.trailers(nil)
	}
}

// trailers ends the request.
func (p *pipe) trailers(hs []protocol.Header) {
	p.receives = false
	p.writer.End(hs)
}

// ready is called by the pipe when the goroutine has read or written.
func (p *pipe) ready() {
	c := p.call
	if c.pipe != p {
		return
	}
	s := c.session
	p.pump() // a broken response ends the call
	if c.pipe == p && p.ended && p.end.State() >= loop.PipeClosed {
		c.closePipe()
		s.calls.remove(c)
	}
	s.memory.recount()
	s.input.startTimeout()
	s.output.schedule(true)
	s.calls.watch()
}

// pump moves what the goroutine has read to the window of the client, and what it has written to the
// codec, as far as that takes it.
func (p *pipe) pump() {
	c := p.call
	if c.stream == nil {
		return
	}
	codec := &c.session.codec
	if p.receives {
		if n := p.writer.Taken(); n > 0 {
			codec.Consumed(c.stream, n)
		}
	}
	for !p.ended {
		switch p.reader.Next() {
		case httpstream.Pending:
			return
		case httpstream.Interim:
			codec.Interim(c.stream, &p.reader.Response)
		case httpstream.Head:
			p.head()
		case httpstream.Piece:
			b := p.reader.Piece()
			n := codec.Send(c.stream, b)
			p.reader.Consume(n)
			if n > 0 {
				c.session.ending.noteResponse()
			}
			if n < len(b) {
				return // until OnWritable
			}
		case httpstream.End:
			p.finish()
			codec.Finish(c.stream, p.reader.Trailers())
		case httpstream.Broken:
			p.finish()
			codec.Reset(c.stream, http2.InternalError)
			c.closePipe()
			c.over()
		}
	}
}

// head sends the head of the response. One without a body is complete. A gRPC caller gets the
// failure of a sidecar as a status, which it may be already.
func (p *pipe) head() {
	c := p.call
	res := &p.reader.Response
	if code := p.reader.Failure(); code != nil && p.grpc && !protocol.IsGRPC(res.Headers) {
		f := &fault.Failure{Code: string(code), Status: res.Status, Text: string(code)}
		res := downstream.GRPCFailure(f, protocol.Find(res.Headers, "x-request-id"))
		p.finish()
		c.session.codec.Respond(c.stream, &res, nil)
		return
	}
	if p.reader.NoBody() {
		p.finish()
		c.session.codec.Respond(c.stream, res, nil)
		return
	}
	c.session.codec.ResponseHead(c.stream, res)
}

// finish ends the response. The goroutine may close its socket: the client wants no more.
func (p *pipe) finish() {
	c := p.call
	p.ended = true
	c.become(sending)
	c.heard, c.unsent = c.session.host.Loop.Now(), 0
	c.session.ending.noteResponse()
	p.end.End()
}

package stream

import (
	"cmp"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// responseStream is a response to a request that was a message. Its body is passed to down
// while it arrives.
type responseStream struct {
	*pair
	call    *call
	head    []byte // sent before the body
	chunks  bool   // the body is sent in chunks
	fetched bool   // down is another sidecar, which gets a reason for a failure
	src     *race.StreamSource
}

// Answer implements downstream.Streams.
func (s *Server) Answer(client loop.Socket, a *downstream.StreamAnswer) {
	p := s.newClientPair(client)
	if p == nil {
		a.Source.Close()
		return
	}
	p.opener = a.Opener
	s.startResponse(&responseStream{pair: p, head: a.Head, chunks: a.Chunks, src: a.Source})
}

func (s *Server) startResponse(d *responseStream) {
	if d.src.Socket != nil {
		d.up, d.upID = endOf(d.src.Socket), endpointID{d.src.Service, d.src.Addr}
	}
	d.interactive.Store(d.src.Interactive)
	if !s.start(d.pair, d.run) {
		d.src.Close()
	}
}

func (d *responseStream) run() {
	d.srv.opt.Process.Charge(len(d.head))
	defer d.srv.opt.Process.Charge(-len(d.head))
	if d.src.Stream.Call() {
		d.call = new(call)
	}
	end, whole := accesslog.StreamEnd{Cut: true}, false // of a panic
	defer func() {
		d.call.end(d.pair, d.src.Stream, &end, whole)
		d.src.Stream.Close(true, 0, end.Out)
		d.src.Record.End(end)
	}()
	d.readDown(func() {}) // the end of down ends the source too
	var sent int64
	fail := d.joinSource()
	cut := d.isAborted()
	if fail != nil {
		if !cut && fail != d.why.Load() {
			d.src.Stream.Failed(fail)
		}
		d.refuse(d.failureResponse(fail))
	} else {
		sent, whole = d.send()
		cut = !whole
	}
	<-d.readerDone
	end = accesslog.StreamEnd{Failure: cmp.Or(d.why.Load(), fail), Cut: cut, Out: sent}
}

func (d *responseStream) failureResponse(f *fault.Failure) []byte {
	if d.fetched {
		return []byte{byte(f.Reason())}
	}
	r := downstream.StreamRequest{Minor: 1}
	return r.AppendFailure(nil, f, date())
}

// joinSource connects the end that the body comes from. A body that was handed off with its
// connection has it already; any other is fetched from another sidecar.
func (d *responseStream) joinSource() *fault.Failure {
	if f := d.why.Load(); f != nil {
		return f
	}
	if d.src.Socket != nil {
		if d.srv.down.has(d.upID) {
			return fault.EndpointDown
		}
		return nil
	}
	if err := (&connector{p: d.pair}).fetch(d.src); err != nil {
		return failure(err)
	}
	return nil
}

// send passes the response on. One that ends early is aborted with a reset.
func (d *responseStream) send() (sent int64, whole bool) {
	d.enter(responding)
	if _, err := d.down.Write(d.head); err != nil {
		d.abortAfter(toFault)
		return 0, false
	}
	t := transfer{
		proc: d.srv.opt.Process, from: d.up, to: d.down,
		body: &d.src.Body, decoded: d.src.Buffer, chunks: d.chunks, call: d.call, begun: d.src.Stream.OnFirstByte(),
	}
	d.src.Buffer = nil
	if f := t.run(); f != noFault {
		d.abortAfter(f)
		return t.sent, false
	}
	d.finish(nil, true)
	return t.sent, true
}

// call is the outcome of a stream that is a gRPC call. Other streams have a nil call, whose methods
// do nothing.
type call struct {
	code protocol.GRPCCode
	said bool // by the response
	over bool // it was said by trailers: a caller that has them may be faster than the stream
}

// onHead returns the status that the head of a response counts as: of a gRPC call that says a code
// at once, that of the code.
func (c *call) onHead(res *protocol.Response) int {
	if c == nil {
		return res.Status
	}
	c.code, c.said = protocol.GRPCStatus(res)
	switch failure := protocol.Find(res.Headers, protocol.HeaderError); {
	case c.said:
		return fault.StatusOfGRPC(c.code)
	case failure != nil: // of another sidecar
		f := fault.Failure{Code: string(failure), Status: res.Status}
		c.code, c.said = f.GRPC(), true
	case res.Status != 200:
		c.code, c.said = protocol.GRPCOfHTTP(res.Status), true
	}
	return res.Status
}

func (c *call) onTrailers(hs []protocol.Header) {
	if code, said := protocol.GRPCStatus(&protocol.Response{Trailers: hs}); said {
		c.code, c.said, c.over = code, true, true
	}
}

// end reports the outcome to the stream, which may be nil, and to the log. whole reports whether the
// caller has got the whole response.
func (c *call) end(p *pair, st *race.Stream, e *accesslog.StreamEnd, whole bool) {
	if c == nil {
		return
	}
	_, client := p.states()
	switch why := p.why.Load(); {
	case c.said:
	case whole:
		c.code = protocol.GRPCOther
	case why != nil:
		c.code = why.GRPC()
	case client == clientLeft:
		c.code = protocol.GRPCCancelled
	case e.Failure != nil:
		c.code = e.Failure.GRPC()
	default:
		c.code = protocol.GRPCInternal // as callers take a reset
	}
	e.Cut = e.Cut && !c.over
	st.NoteCode(c.code, c.said)
	e.GRPC, e.Code = true, c.code
}

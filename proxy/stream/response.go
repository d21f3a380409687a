package stream

import (
	"cmp"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// responseStream is a response to a request that was a message. Its body is passed to down
// while it arrives.
type responseStream struct {
	*pair
	head    []byte // sent before the body
	chunks  bool   // the body is sent in chunks
	fetched bool   // down is another sidecar, which gets a reason for a failure
	src     *exchange.StreamSource
}

// Answer implements downstream.Streams.
func (s *Server) Answer(client loop.Socket, a *downstream.StreamAnswer) {
	p := s.newPair(client)
	if p == nil {
		a.Source.Close()
		return
	}
	p.by = a.Leaser
	s.startResponse(&responseStream{pair: p, head: a.Head, chunks: a.Chunks, src: a.Source})
}

func (s *Server) startResponse(d *responseStream) {
	if d.src.Socket != nil {
		d.up = endOf(d.src.Socket)
	}
	if !s.start(d.pair, d.run) {
		d.src.Close()
	}
}

func (d *responseStream) run() {
	d.srv.opt.Process.Hold(len(d.head))
	defer d.srv.opt.Process.Hold(-len(d.head))
	d.readDown(func() {}) // the end of down ends the source too
	var sent int64
	var whole bool
	fail := d.joinSource()
	cut := d.isAborted()
	if fail != nil {
		if !cut && fail != d.why.Load() {
			d.src.Lease.Failed(fail)
		}
		d.refuse(d.failureResponse(fail))
	} else {
		sent, whole = d.send()
		cut = !whole
	}
	d.closeUp(whole)
	<-d.readerDone
	d.src.Lease.Close(true, 0, sent)
	d.src.Record.End(accesslog.StreamEnd{Failure: cmp.Or(d.why.Load(), fail), Cut: cut, Out: sent})
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
		return nil
	}
	err := d.dial(d.src.Addr, d.src.Service, "", nil)
	if err == nil {
		err = d.sendPreface(&link.Stream{Kind: link.StreamAnswer, TimeLeft: d.src.Timeout, Token: d.src.Token})
	}
	if err != nil {
		return failure(err)
	}
	return nil
}

// send passes the response on. One that ends early is aborted with a reset.
func (d *responseStream) send() (sent int64, whole bool) {
	d.responding.Store(true)
	d.hasBody(&d.downloading)
	if _, err := d.down.Write(d.head); err != nil {
		d.abort()
		return 0, false
	}
	t := transfer{
		proc: d.srv.opt.Process, from: d.up, to: d.down,
		body: &d.src.Body, decoded: d.src.Buffer, chunks: d.chunks,
	}
	d.src.Buffer = nil
	if t.run() != noFault {
		d.abort()
		return t.sent, false
	}
	d.finish(nil)
	return t.sent, true
}

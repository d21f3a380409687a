package stream

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// delivery is an answer whose body goes to down as it comes.
type delivery struct {
	*pair
	head   []byte // goes first
	chunks bool   // the body goes in chunks
	src    *exchange.StreamSource
}

// Answer implements downstream.Streams.
func (s *Server) Answer(client loop.Socket, a *downstream.StreamAnswer) {
	down := endOf(client)
	if down == nil {
		_ = client.Close()
		a.Source.Close()
		return
	}
	s.deliver(&delivery{pair: &pair{srv: s, down: down}, head: a.Head, chunks: a.Chunks, src: a.Source})
}

func (s *Server) deliver(d *delivery) {
	if d.src.Socket != nil {
		d.up = endOf(d.src.Socket)
	}
	if !s.start(d.pair, d.run) {
		d.src.Close()
	}
}

func (d *delivery) run() {
	d.srv.opt.Process.Hold(len(d.head))
	defer d.srv.opt.Process.Hold(-len(d.head))
	d.listen(func() {}) // its end is the source's
	var sent int64
	var whole bool
	fail := d.source()
	cut := d.isCut()
	if fail != nil {
		if !cut {
			d.src.Lease.Failed(fail)
		}
		words := downstream.StreamRequest{Minor: 1}
		d.refuse(words.AppendFailure(nil, fail, date()))
	} else {
		sent, whole = d.send()
		cut = !whole
	}
	d.part(whole)
	<-d.heard
	d.src.Lease.Close(true, 0, sent)
	d.src.Record.End(accesslog.StreamEnd{Failure: fail, Cut: cut, Out: sent})
}

// source has the other end joined, from which the body comes.
func (d *delivery) source() *fault.Failure {
	if d.src.Socket != nil {
		return nil
	}
	err := d.dial(d.src.Addr, d.src.Service)
	if err == nil {
		err = d.greet(&link.Stream{Kind: link.StreamAnswer, TimeLeft: d.src.Timeout, Token: d.src.Token})
	}
	if err != nil {
		return failure(err)
	}
	return nil
}

// send passes the answer on. One that is cut short ends in a reset.
func (d *delivery) send() (sent int64, whole bool) {
	watch := d.watch()
	defer watch.stop()
	if _, err := d.down.Write(d.head); err != nil {
		d.cut()
		return 0, false
	}
	t := transfer{
		proc: d.srv.opt.Process, from: d.up, to: d.down,
		body: &d.src.Body, held: d.src.Buffer, chunks: d.chunks,
	}
	d.src.Buffer = nil
	if t.run() != noFault {
		d.cut()
		return t.sent, false
	}
	d.finish(nil)
	return t.sent, true
}

// chunked tells whether the body of b has no length that was announced.
func chunked(b *http1.Body) bool {
	return b.Framing() == http1.Chunked || b.Framing() == http1.UntilClose
}

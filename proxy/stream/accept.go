package stream

import (
	"bytes"
	"errors"
	"os"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Accept implements downstream.Streams.
func (s *Server) Accept(peer loop.Socket, a *downstream.StreamAccept) {
	p := s.newPair(peer)
	if p == nil {
		return
	}
	p.opener = a.Opener
	switch a.Stream.Kind {
	case link.StreamAnswer:
		s.serveParked(p, a.Stream.Token)
	case link.StreamOpaque:
		t := s.newTunnel(p, a.Service, a.Timeout)
		t.rest, t.accepted, t.record = a.Rest, []byte{link.StreamTaken}, a.Record
		t.failureResponse = func(f *fault.Failure) []byte { return []byte{byte(f.Reason())} }
		s.start(p, t.run)
	default:
		s.startIn(s.headPlaces, p, func() { p.serve(a) }) // the head names the client, whose share counts
	}
}

// serveParked sends the parked body of the token, as link.StreamAnswer says. The previous
// process may have parked it. A token that is unknown or has expired is refused with a reason.
func (s *Server) serveParked(p *pair, token link.Token) {
	parked := s.unpark(token)
	if parked == nil {
		s.start(p, func() { p.fetchFromPrevious(token) })
		return
	}
	p.behind = parked.source.Client
	src := parked.take()
	s.startResponse(&responseStream{pair: p, head: []byte{link.StreamTaken}, chunks: !src.Body.HasLength(), fetched: true, src: src})
}

// serve carries a request of another sidecar, which has added the headers of a proxy already.
func (p *pair) serve(a *downstream.StreamAccept) {
	r := &downstream.StreamRequest{Service: a.Service, Timeout: a.Timeout, Minor: 1, Record: a.Record}
	if f := p.receive(r, a); f != nil {
		if why := p.why.Load(); why != nil {
			f = why
		} else {
			p.opener.Failed(f)
		}
		r.Record.End(accesslog.StreamEnd{Failure: f, Cut: p.isAborted()})
		p.refuse(r.AppendFailure(nil, f, date()))
		return
	}
	p.takePlace(p.srv.places)
	newRequestStream(p, r).run()
}

// receive reads the head of the request into r. a has the part that was read before.
func (p *pair) receive(r *downstream.StreamRequest, a *downstream.StreamAccept) *fault.Failure {
	in := newInput(p.srv.opt.Process, a.Rest)
	defer in.free()
	_ = p.down.SetReadDeadline(time.Now().Add(p.srv.config().Timeouts.Header))
	var head http1.Head
	var req protocol.Request
	lim := p.srv.limits()
	n, err := http1.DecodeRequest(in.b, &req, &head, lim)
	for err == http1.ErrIncomplete {
		if err = in.more(p.down); err == nil {
			n, err = http1.DecodeRequest(in.b, &req, &head, lim)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.SlowHead
	case err != nil:
		return fault.BadRequest
	}
	_ = p.down.SetReadDeadline(time.Time{})
	if a.Rules.Given() {
		c := allow.Call{Peer: a.Peer, Req: &req, Path: req.Path}
		if a.Rules.Refuse(&c, p.down.conn.RemoteAddr().String(), p.srv.opt.Logger) {
			return fault.NotAllowed
		}
	}
	req.Headers, _ = protocol.FromLink(req.Headers)
	if protocol.Find(req.Headers, protocol.HeaderTimeout) != nil || p.srv.service(a.Service).TimeoutHeader {
		req.Headers, _ = protocol.SetTimeLeft(req.Headers, a.Timeout, nil)
	}
	r.SetHost(p.srv.service(a.Service), req.Authority)
	p.interactive.Store(protocol.Interactive(req.Headers))
	r.GRPC, p.behind = protocol.IsGRPC(req.Headers), forwarded.NearestClient(req.Headers)
	a.Client.GRPC, a.Client.Behind = r.GRPC, p.behind
	p.opener = a.Opener.From(a.Client)
	r.Minor, r.ToHead = head.Minor, head.HeadMethod
	if head.Protocols != nil && head.Framing != http1.Chunked && head.Length <= downstream.MaxUpgradeBody {
		return p.receiveUpgrade(r, in, n, &req, &head)
	}
	r.Rest = in.rest(n)
	r.Record.SetRequest(stats.StreamBody, &req)
	r.Kind, r.Head = stats.StreamBody, http1.AppendStreamRequest(nil, &req, &head)
	r.Body.Reset(&head, lim)
	r.Chunks, r.Continue, r.Buffer = head.Framing == http1.Chunked, head.ExpectContinue, buffers.Get(0)
	return nil
}

// receiveUpgrade reads the body of a request to upgrade, whose head is the first n bytes of in. The other sidecar
// has sent the body with its length. It counts in limits.buffered as it comes.
func (p *pair) receiveUpgrade(r *downstream.StreamRequest, in *intake, n int, req *protocol.Request, head *http1.Head) *fault.Failure {
	r.Kind, r.Protocols = stats.StreamWebSocket, bytes.Clone(head.Protocols)
	r.Record.SetRequest(stats.StreamWebSocket, req)
	end := n + int(head.Length)
	_ = p.down.SetReadDeadline(time.Now().Add(p.srv.config().Timeouts.Body))
	for len(in.b) < end {
		if p.srv.opt.Process.Full() {
			return fault.Overloaded
		}
		switch err := in.more(p.down); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fault.SlowBody
		case err != nil:
			return fault.BadRequest
		}
	}
	_ = p.down.SetReadDeadline(time.Time{})
	req.Body = in.b[n:end]
	r.Head = http1.AppendUpgradeRequest(nil, req, r.Protocols)
	r.Rest = in.rest(end)
	return nil
}

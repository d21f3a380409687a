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
		s.parking.serve(p, a.Stream.Token)
	case link.StreamOpaque:
		t := s.newTunnel(p, a.Service, a.Timeout)
		t.rest, t.accepted, t.record = a.Rest, []byte{link.StreamTaken}, a.Record
		t.failureResponse = func(f *fault.Failure) []byte { return []byte{byte(f.Reason())} }
		s.start(p, t.run)
	default:
		r := &downstream.StreamRequest{Service: a.Service, Timeout: a.Timeout, Minor: 1, Record: a.Record}
		s.startIn(s.headPlaces, p, (&incoming{p, a, r}).run) // the head names the client, whose share counts
	}
}

// incoming is a request of another sidecar, which has added the headers of a proxy already. Once its head
// is there it becomes a requestStream.
type incoming struct {
	*pair
	a *downstream.StreamAccept  // what the loop has read
	r *downstream.StreamRequest // made of a and of the head
}

// run receives the request and carries it, on the goroutine of the stream.
func (q *incoming) run() {
	end, record := accesslog.StreamEnd{Cut: true}, q.r.Record // of a panic
	defer func() { record.End(end) }()
	if f := q.receive(); f != nil {
		if why := q.why.Load(); why != nil {
			f = why
		} else {
			q.opener.Failed(f)
		}
		end = accesslog.StreamEnd{Failure: f, Cut: q.isAborted()}
		q.refuse(q.r.AppendFailure(nil, f, date()))
		return
	}
	record = nil // of the requestStream
	q.takePlace(q.srv.places)
	newRequestStream(q.pair, q.r).run()
}

// receive reads the head of the request. a has the part that was read before.
func (q *incoming) receive() *fault.Failure {
	a, r := q.a, q.r
	in := newInput(q.srv.opt.Process, a.Rest)
	defer in.free()
	_ = q.down.SetReadDeadline(time.Now().Add(q.srv.config().Timeouts.Header))
	var head http1.Head
	var req protocol.Request
	lim := q.srv.limits()
	n, err := http1.DecodeRequest(in.b, &req, &head, lim)
	for err == http1.ErrIncomplete {
		if err = in.more(q.down); err == nil {
			n, err = http1.DecodeRequest(in.b, &req, &head, lim)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.SlowHead
	case err != nil:
		return fault.BadRequest
	}
	_ = q.down.SetReadDeadline(time.Time{})
	if a.Rules.Given() {
		c := allow.Call{Peer: a.Peer, Req: &req, Path: req.Path}
		if a.Rules.Refuse(&c, q.down.conn.RemoteAddr().String(), q.srv.opt.Logger) {
			return fault.NotAllowed
		}
	}
	req.Headers, _ = protocol.FromLink(req.Headers)
	if protocol.Find(req.Headers, protocol.HeaderTimeout) != nil || q.srv.service(a.Service).TimeoutHeader {
		req.Headers, _ = protocol.SetTimeLeft(req.Headers, a.Timeout, nil)
	}
	r.SetHost(q.srv.service(a.Service), req.Authority)
	q.interactive.Store(protocol.Interactive(req.Headers))
	r.GRPC, q.behind = protocol.IsGRPC(req.Headers), forwarded.NearestClient(req.Headers)
	a.Client.GRPC, a.Client.Behind = r.GRPC, q.behind
	q.opener = a.Opener.From(a.Client)
	r.Minor, r.ToHead = head.Minor, head.HeadMethod
	if head.Protocols != nil && head.Framing != http1.Chunked && head.Length <= downstream.MaxUpgradeBody {
		return q.receiveUpgrade(in, n, &req, &head)
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
func (q *incoming) receiveUpgrade(in *intake, n int, req *protocol.Request, head *http1.Head) *fault.Failure {
	r := q.r
	r.Kind, r.Protocols = stats.StreamWebSocket, bytes.Clone(head.Protocols)
	r.Record.SetRequest(stats.StreamWebSocket, req)
	end := n + int(head.Length)
	_ = q.down.SetReadDeadline(time.Now().Add(q.srv.config().Timeouts.Body))
	for len(in.b) < end {
		if q.srv.opt.Process.Full() {
			return fault.Overloaded
		}
		switch err := in.more(q.down); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fault.SlowBody
		case err != nil:
			return fault.BadRequest
		}
	}
	_ = q.down.SetReadDeadline(time.Time{})
	req.Body = in.b[n:end]
	r.Head = http1.AppendUpgradeRequest(nil, req, r.Protocols)
	r.Rest = in.rest(end)
	return nil
}

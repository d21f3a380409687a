package stream

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Request implements downstream.Streams.
func (s *Server) Request(client loop.Socket, r *downstream.StreamRequest) {
	p := s.newClientPair(client)
	if p == nil {
		return
	}
	p.opener = r.Opener
	p.interactive.Store(r.Interactive)
	if r.Kind != stats.StreamConnect {
		x := newRequestStream(p, r)
		if !s.start(p, x.run) {
			x.release()
			x.releaseHead()
		}
		return
	}
	t := s.newTunnel(p, r.Service, r.Timeout)
	t.relay.guarded = s.opt.Process.Generation().Guarded()
	t.query.unrouted, t.query.host = r.Unrouted, r.Host
	t.rest, r.Rest = r.Rest, nil
	t.accepted, t.status, t.record = []byte(downstream.Connected), http.StatusOK, r.Record
	t.failureResponse = func(f *fault.Failure) []byte { return r.AppendFailure(nil, f, date()) }
	if r.Opened {
		t.accepted, t.failureResponse = nil, noResponse
	}
	s.start(p, t.run)
}

// requestStream is a request, whose body may still be arriving, and its response. After status
// 101 it is a tunnel. The goroutine of readDown passes the request on, and run the response.
type requestStream struct {
	*pair
	connector connector
	r         *downstream.StreamRequest
	call      *call
	query     endpointQuery
	linked    bool // the endpoint is another sidecar
	stream    *race.Stream
	replay    *replay // of the request; nil before an endpoint is connected
	repeats   int     // how often it was sent again although an endpoint may have seen it
	wasFull   bool    // limits.buffered was reached before the memory of r was counted

	// Each may be called again.
	releaseHead func() // uncounts the memory of r.Head
	release     func() // uncounts that of r.Rest and r.Buffer

	until time.Time // the deadline of the response's head; zero in opening; guarded by mu

	// The goroutine of readDown sets these, about the request.
	requestFault atomic.Pointer[fault.Failure] // why the request could not be passed on; nil if it could
	requestSent  atomic.Bool                   // the whole request was passed on
	in           atomic.Int64                  // bytes of the body, or of the tunnel

	// The goroutine of run sets these, about the response.
	interims     int   // interim responses that were passed on
	status       int   // 0 until the head is sent
	responseSent bool  // the whole response was passed on
	out          int64 // bytes of the body, or of the tunnel
}

// newRequestStream counts the memory of r at once: a loop may start many streams before the goroutine
// of the first one runs.
func newRequestStream(p *pair, r *downstream.StreamRequest) *requestStream {
	proc := p.srv.opt.Process
	x := &requestStream{pair: p, connector: connector{p: p}, r: r, wasFull: proc.Full()}
	count := func(n int) (release func()) {
		proc.Charge(n)
		return sync.OnceFunc(func() { proc.Charge(-n) })
	}
	x.releaseHead, x.release = count(cap(r.Head)), count(cap(r.Rest)+protocol.Held(r.Buffer))
	return x
}

// run carries the stream to its end. A failure is counted, and the client gets it as its response. When nothing reads
// the client any more, the race and the access log get the outcome.
func (x *requestStream) run() {
	if x.r.GRPC {
		x.call = new(call)
	}
	defer x.release()
	defer x.releaseHead()
	defer x.connector.forgetHop()
	end, whole := accesslog.StreamEnd{Cut: true}, false // of a panic
	defer func() {
		x.replay.settle()
		x.call.end(x.pair, x.stream, &end, whole)
		x.stream.Close(x.status != 0, end.In, end.Out)
		x.r.Record.End(end)
	}()
	f := x.carry()
	if f != nil && f.Free() && x.repeats > 0 {
		f = fault.Reset // an endpoint may have carried it out
	}
	x.replay.settle()
	cut := x.isAborted() && !x.responseSent // a client that has the whole response may close first
	if f != nil {
		switch {
		case cut || f == x.why.Load():
		case x.stream != nil:
			x.stream.Failed(f)
		case x.r.Unrouted != nil && x.upstream() != nil:
			x.opener.Failed(f)
		}
		x.refuse(x.r.AppendFailure(nil, f, date()))
	}
	if x.readerDone != nil {
		<-x.readerDone
	}
	end, whole = accesslog.StreamEnd{
		Status: x.status, Failure: cmp.Or(x.why.Load(), f), Cut: cut, Endpoint: x.connector.dialled, In: x.in.Load(), Out: x.out,
	}, x.responseSent
}

// carry finds an endpoint and passes the request and the response on. If it returns a Failure,
// the client has received no final response yet.
func (x *requestStream) carry() (fail *fault.Failure) {
	switch f := x.why.Load(); {
	case f != nil:
		return f
	case len(x.r.Head) == 0:
		x.opener.Failed(fault.BadRequest)
		return fault.BadRequest
	case x.wasFull:
		x.opener.Failed(fault.Overloaded)
		return fault.Overloaded
	}
	x.query = endpointQuery{
		service: x.r.Service, unrouted: x.r.Unrouted, kind: link.StreamHTTP, timeout: x.r.Timeout, host: x.r.Host,
		message: x.r.Kind == stats.StreamBody,
	}
	x.stream, x.linked, fail = x.connector.connect(&x.query)
	if fail != nil {
		return fail
	}
	x.replay = newReplay(x.srv.opt.Process, x.r.Head, x.startTimeout)
	x.r.Head = nil
	x.releaseHead() // replay counts it
	if x.r.Kind != stats.StreamBody {
		x.startTimeout() // all of the request is there
	}
	x.replay.resume(x.up)
	if x.r.Kind == stats.StreamBody {
		// The response may be faster than upload, and the endpoint is reset unless it has the whole request.
		x.requestSent.Store(!x.r.Chunks && x.r.Body.Done() && x.r.Body.Length() == 0)
		if !x.r.Continue {
			x.note(clientUploading)
		}
		x.readDown(x.upload)
	}
	for {
		if fail = x.passResponse(); fail == nil || !x.mayRepeat(fail) {
			return fail
		}
		if fail = x.tryAgain(fail); fail != nil {
			return fail
		}
	}
}

func (x *requestStream) upload() {
	x.release()
	t := transfer{
		proc: x.srv.opt.Process, from: x.down, replay: x.replay,
		body: &x.r.Body, decoded: x.r.Buffer, rest: x.r.Rest, chunks: x.r.Chunks,
		trailers: x.r.Trailers, ending: &x.requestSent,
	}
	x.r.Buffer, x.r.Rest = nil, nil
	f := t.run()
	x.note(clientUploaded)
	x.in.Store(t.sent)
	switch f {
	case noFault:
		x.requestSent.Store(true)
		x.startTimeout()
	case toFault: // the endpoint may have sent a response before it closed
		x.startTimeout()
	case malformed:
		x.requestFault.Store(fault.BadRequest)
		x.closeUp(false)
	default:
		if x.noteLeft() < finishing {
			x.abort()
		}
	}
}

// startTimeout sets the deadline for the head of the response. It holds for writes, too: the endpoint may never read
// what is still to be sent to it.
func (x *requestStream) startTimeout() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state.become(awaitingHead) {
		x.until = time.Now().Add(x.r.Timeout)
		_ = x.up.SetDeadline(x.until)
	}
}

// onHead removes the deadline for the head of the response.
func (x *requestStream) onHead() {
	x.replay.settle()
	x.mu.Lock()
	x.state.become(responding)
	_ = x.up.SetDeadline(time.Time{})
	x.mu.Unlock()
	x.watch.rearm()
}

// passResponse reads heads of responses. It passes on the interim ones, and then the final
// one.
func (x *requestStream) passResponse() *fault.Failure {
	in := intake{proc: x.srv.opt.Process}
	defer in.free()
	var head http1.Head
	var resp protocol.Response
	lim := x.srv.limits()
	for {
		n, err := http1.DecodeResponse(in.b, x.r.ToHead, &resp, &head, lim)
		switch {
		case err == http1.ErrIncomplete:
			if err = in.more(x.up); err == nil {
				continue
			}
			if f := cmp.Or(x.requestFault.Load(), x.why.Load()); f != nil {
				return f
			}
			return failure(err)
		case err != nil:
			return fault.Malformed
		case http1.Offers(x.r.Protocols, head.Protocols):
			return x.upgrade(&resp, &head, &in, n)
		}
		if f := x.refusal(&resp); f != nil {
			return f
		}
		switch {
		case resp.Status == http.StatusSwitchingProtocols:
			return fault.Malformed // the request asked for no upgrade, or for another one
		case resp.Status >= 200:
			return x.finalResponse(&resp, &head, &in, n)
		}
		if f := x.interim(&resp); f != nil {
			return f
		}
		in.b = in.b[n:]
		head.Reset()
	}
}

// interim passes an interim response on, unless there were many and the client does not wait for this one with its body.
func (x *requestStream) interim(resp *protocol.Response) *fault.Failure {
	x.replay.settle() // the endpoint has begun
	awaited := resp.Status == http.StatusContinue && x.r.Continue
	if x.r.Minor == 0 || x.interims >= http1.MaxInterim && !awaited {
		return nil
	}
	x.interims++
	if !x.linked {
		resp.Headers, _, _ = protocol.FromEndpoint(resp.Headers)
	}
	out := http1.AppendInterim(nil, resp)
	if len(out) == 0 {
		return fault.Malformed
	}
	if x.writeEarly(out) != nil {
		x.abort()
	}
	if awaited {
		x.r.Continue = false
		x.note(clientUploading)
	}
	return nil
}

// addHeaders adds a proxy's headers to the response. Another sidecar has added Via and Date.
func (x *requestStream) addHeaders(resp *protocol.Response, head *http1.Head) {
	x.onHead()
	if !x.linked {
		minor := head.Minor
		if x.upstream().pipe != nil { // translated
			minor = protocol.MinorHTTP2
		}
		hs, dated, _ := protocol.FromEndpoint(resp.Headers)
		if x.srv.config().Via == config.ViaOn {
			hs = append(hs, protocol.Header{Name: protocol.NameVia, Value: protocol.ViaValues[minor]})
		}
		if !dated {
			hs = append(hs, protocol.Header{Name: protocol.NameDate, Value: date()})
		}
		resp.Headers = hs
	}
	downstream.AddRequestID(resp, x.r.RequestID)
	resp.Headers = x.connector.at.Cookies.Apply(resp.Headers)
	if x.r.Edit != nil {
		x.r.Edit(resp)
	}
}

// sendHead sends the head of the response. After it only a reset can show a failure.
func (x *requestStream) sendHead(status int, head []byte) bool {
	x.status = status
	if err := x.writeHead(head); err != nil {
		x.abortAfter(toFault)
		return false
	}
	return true
}

// finalResponse passes on the final response, whose head is in[:n], and closes both ends.
func (x *requestStream) finalResponse(resp *protocol.Response, head *http1.Head, in *intake, n int) *fault.Failure {
	x.addHeaders(resp, head)
	out := http1.AppendStreamResponse(nil, resp, head, x.r.Minor)
	if len(out) == 0 {
		return fault.Malformed
	}
	x.stream.Connected(x.call.onHead(resp))
	if !x.sendHead(resp.Status, out) {
		return nil
	}
	var body http1.Body
	body.Reset(head, x.srv.limits())
	t := transfer{
		proc: x.srv.opt.Process, from: x.up, to: x.down,
		body: &body, decoded: buffers.Get(0), rest: in.rest(n), chunks: !body.HasLength() && x.r.Minor > 0,
		call: x.call,
	}
	f := t.run()
	x.out = t.sent
	if f != noFault {
		x.abortAfter(f)
		return nil
	}
	x.responseSent = true
	x.finish(nil, x.requestSent.Load() || x.r.Kind == stats.StreamWebSocket)
	return nil
}

// upgrade passes the 101 on, which is the first n bytes of in, and then bytes both ways.
func (x *requestStream) upgrade(resp *protocol.Response, head *http1.Head, in *intake, n int) *fault.Failure {
	x.addHeaders(resp, head)
	out := http1.AppendUpgradeResponse(nil, resp, head.Protocols)
	if len(out) == 0 {
		return fault.Malformed
	}
	x.stream.Connected(resp.Status)
	if x.sendHead(resp.Status, append(out, in.rest(n)...)) {
		var moved int64
		early := newInput(x.srv.opt.Process, x.r.Rest)
		defer early.free()
		x.r.Rest = nil
		x.release()
		moved, x.out = (&relay{p: x.pair}).run(early)
		x.in.Store(moved)
	}
	return nil
}

func date() []byte { return []byte(time.Now().UTC().Format(http.TimeFormat)) }

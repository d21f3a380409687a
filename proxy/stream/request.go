package stream

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Request implements downstream.Streams.
func (s *Server) Request(client loop.Socket, r *downstream.StreamRequest) {
	down := endOf(client)
	if down == nil {
		_ = client.Close()
		return
	}
	p := &pair{srv: s, down: down}
	if r.Kind != stats.StreamConnect {
		s.start(p, (&requestStream{pair: p, r: r}).run)
		return
	}
	t := &tunnel{
		pair: p, wish: s.opaque(r.Leaser, r.Service, r.Timeout), rest: r.Rest, taken: []byte(connected),
		status: http.StatusOK, trail: r.Record,
		words: func(f *fault.Failure) []byte { return r.AppendFailure(nil, f, date()) },
	}
	r.Rest = nil
	s.start(p, t.run)
}

// requestStream is a request, whose body may still be coming, and its answer; after a
// 101 it is a tunnel. The request is passed on by the goroutine that listens to
// the client, the answer by run.
type requestStream struct {
	*pair
	r      *downstream.StreamRequest
	linked bool // the endpoint is another sidecar
	lease  *exchange.Lease
	free   func() // gives back what counts for r

	headed    bool                          // the answer's head is here; guarded by mu
	blame     atomic.Pointer[fault.Failure] // why the request could not be passed on
	complete  atomic.Bool                   // the request was passed on
	connected bool                          // the lease knows
	status    int                           // of the answer, once it is sent on
	whole     bool                          // the answer was sent on to its end
	in        atomic.Int64                  // bytes of the bodies, or of the tunnel
	out       int64
}

func (x *requestStream) run() {
	n := len(x.r.Head) + cap(x.r.Rest) + protocol.Held(x.r.Buffer)
	proc := x.srv.opt.Process
	full := proc.Full()
	proc.Hold(n)
	x.free = sync.OnceFunc(func() { proc.Hold(-n) })
	defer x.free()
	f := x.carry(full)
	cut := x.isCut() && !x.whole // who has it all may leave before that is noticed here
	if f != nil {
		if x.lease != nil && !cut {
			x.lease.Failed(f)
		}
		x.settled.Store(true)
		x.part(false)
		x.refuse(x.r.AppendFailure(nil, f, date()))
	}
	if x.heard != nil {
		<-x.heard
	}
	if x.lease != nil {
		x.lease.Close(x.connected, x.in.Load(), x.out)
	}
	x.r.Record.End(accesslog.StreamEnd{
		Status: x.status, Failure: f, Cut: cut, Endpoint: x.at, In: x.in.Load(), Out: x.out,
	})
}

// carry finds an endpoint and talks to it. After a Failure the client has no
// answer yet.
func (x *requestStream) carry(full bool) (fail *fault.Failure) {
	switch {
	case len(x.r.Head) == 0:
		return fault.BadRequest
	case full:
		return fault.Overloaded
	}
	x.lease, x.linked, fail = x.connect(&wish{
		leaser: x.r.Leaser, service: x.r.Service, kind: link.StreamHTTP, timeout: x.r.Timeout,
	})
	if fail != nil {
		return fail
	}
	watch := x.watch()
	defer watch.stop()
	if _, err := x.up.Write(x.r.Head); err != nil {
		return failure(err)
	}
	x.r.Head = nil
	if x.r.Kind == stats.StreamBody {
		x.listen(x.upload)
	} else {
		x.due()
	}
	return x.answer()
}

// upload passes on what is left of the request.
func (x *requestStream) upload() {
	x.free()
	t := transfer{
		proc: x.srv.opt.Process, from: x.down, to: x.up,
		body: &x.r.Body, held: x.r.Buffer, rest: x.r.Rest, chunks: x.r.Chunks,
	}
	x.r.Buffer, x.r.Rest = nil, nil
	f := t.run()
	x.in.Store(t.sent)
	switch f {
	case noFault:
		x.complete.Store(true)
		x.due()
	case toFault: // what the endpoint has said before it left is still to be read
		x.due()
	case malformed:
		x.blame.Store(fault.BadRequest)
		x.part(false)
	default:
		if !x.settled.Load() {
			x.cut()
		}
	}
}

// due sets the time for the head of the answer.
func (x *requestStream) due() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.headed {
		x.waits.Store(true)
		_ = x.up.SetReadDeadline(time.Now().Add(x.r.Timeout))
	}
}

// arrived: the head of the answer is here.
func (x *requestStream) arrived() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.headed = true
	x.waits.Store(false)
	_ = x.up.SetReadDeadline(time.Time{})
}

// answer reads the head of the answer, after interim ones, and has the rest
// follow.
func (x *requestStream) answer() *fault.Failure {
	in := intake{proc: x.srv.opt.Process}
	defer in.free()
	var head http1.Head
	var resp protocol.Response
	lim := x.srv.limits()
	for interim := 0; ; {
		n, err := http1.DecodeResponse(in.b, x.r.ToHead, &resp, &head, lim)
		switch {
		case err == http1.ErrIncomplete:
			if err = in.more(x.up); err == nil {
				continue
			}
			if f := x.blame.Load(); f != nil {
				return f
			}
			return failure(err)
		case err != nil || interim == http1.MaxInterim:
			return fault.Malformed
		case head.WebSocket && x.r.Kind == stats.StreamWebSocket:
			return x.upgrade(&resp, &head, &in, n)
		case resp.Status == http.StatusSwitchingProtocols:
			return fault.Malformed // to what nobody asked for
		case resp.Status >= 200:
			return x.pass(&resp, &head, &in, n)
		}
		if f := x.interim(&resp); f != nil {
			return f
		}
		in.b = in.b[n:]
		head.Reset()
		interim++
	}
}

func (x *requestStream) interim(resp *protocol.Response) *fault.Failure {
	if x.r.Minor == 0 {
		return nil
	}
	out := http1.AppendInterim(nil, resp)
	if len(out) == 0 {
		return fault.Malformed
	}
	if err := x.say(out); err != nil {
		x.cut()
	}
	return nil
}

// sign adds to the answer what its recipient is owed. Another sidecar has done
// its part.
func (x *requestStream) sign(resp *protocol.Response, head *http1.Head) {
	x.arrived()
	if !x.linked {
		x.r.AddVia(resp, head.Minor, date())
	}
	x.r.AddRequestID(resp)
}

// open sends the head of the answer; from here on a fault can't be told in words.
func (x *requestStream) open(status int, head []byte) bool {
	x.lease.Connected(status)
	x.connected, x.status = true, status
	if err := x.say(head); err != nil {
		x.cut()
		return false
	}
	return true
}

// pass sends the answer on, whose head is the first n bytes of in, and
// disconnects.
func (x *requestStream) pass(resp *protocol.Response, head *http1.Head, in *intake, n int) *fault.Failure {
	x.sign(resp, head)
	out := http1.AppendStreamResponse(nil, resp, head, x.r.Minor)
	if len(out) == 0 {
		return fault.Malformed
	}
	if !x.open(resp.Status, out) {
		return nil
	}
	var body http1.Body
	body.Reset(head, x.srv.limits())
	t := transfer{
		proc: x.srv.opt.Process, from: x.up, to: x.down,
		body: &body, held: buffers.Get(0), rest: in.rest(n), chunks: chunked(&body) && x.r.Minor > 0,
	}
	f := t.run()
	x.out = t.sent
	if f != noFault {
		x.cut()
		return nil
	}
	x.whole = true
	x.settled.Store(true)
	x.part(x.complete.Load() || x.r.Kind == stats.StreamWebSocket)
	x.finish(nil)
	return nil
}

// upgrade passes the 101 on, the first n bytes of in, and joins the connections.
func (x *requestStream) upgrade(resp *protocol.Response, head *http1.Head, in *intake, n int) *fault.Failure {
	x.sign(resp, head)
	out := http1.AppendWebSocketResponse(nil, resp)
	if len(out) == 0 {
		return fault.Malformed
	}
	if x.open(resp.Status, append(out, in.rest(n)...)) {
		var moved int64
		early := x.srv.early(x.r.Rest)
		x.r.Rest = nil
		x.free()
		moved, x.out = x.relay(early)
		x.in.Store(moved)
	}
	return nil
}

// date is the value of Date for a message of this moment.
func date() []byte { return []byte(time.Now().UTC().Format(http.TimeFormat)) }

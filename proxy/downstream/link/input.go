package link

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// input takes what the reader of the link has decoded, as its handler.
//
// Calls in: the ending ends it (stop). memory refuses what is incomplete while memory is short (reject).
//
// Calls out: a request goes to calls.add, and a CANCEL to the request in calls. ending.note gets the id of each request
// that is complete or refused. A stream goes to leaving.take.
type input struct {
	*session
	cur     *exchange.Exchange // receives the next request that the reader decodes; nil for none
	useless uint64             // CANCELs of requests that were not in calls, or were cancelled before; STARTs of requests that had started
}

var _ linkconn.Handler = (*input)(nil)

// A dialler cancels a request at most twice: when it needs no response any more, and when it
// stops waiting for the outcome. It asks once whether the request has started. More CANCELs and STARTs would only keep
// the loop busy, so the link of such a peer closes. It may send spareUseless ahead of its requests.
const (
	uselessPerRequest = 3
	spareUseless      = 256
)

// OnPreface implements link.RequestHandler.
func (in *input) OnPreface(version uint8, peer link.Settings) {
	in.Writer.Preface(link.Acceptor, in.settings())
	in.calls.setPeer(peer)
	in.Establish(version, peer)
	in.host.Process.Links.Add(1) // before Draining is read: the count of Links relies on it
	in.listener.Links.Add(1)
	if in.listener.Closing || in.host.Process.Draining.Load() {
		in.ending.drain()
	}
}

// settings returns what the session announces. Requests may wait only where the application has slots.
func (in *input) settings() link.Settings {
	s := linkconn.Settings(in.host.Process)
	if in.listener.Fixed.Service.Shared.SlotLimit() > 0 {
		s.Features |= link.FeatureStarts
	}
	return s
}

// NewRequest implements link.RequestHandler.
func (in *input) NewRequest(uint64) *protocol.Request {
	in.cur = in.host.Pool.Exchange(&in.calls)
	return &in.cur.Request
}

// OnRequest implements link.RequestHandler.
func (in *input) OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer) {
	ex := in.cur
	in.cur = nil
	in.ending.note(id)
	ex.HeadBuffer, ex.StreamID = buf, id
	if ttl > 0 {
		req.Deadline = in.host.Loop.Now() + ttl
	}
	switch {
	case in.State() == linkconn.Draining:
		in.refuse(ex, link.Draining)
		return
	case in.opaque():
		in.refuse(ex, link.NoService)
		return
	case in.calls.len() >= mux.MaxStreams:
		in.refuse(ex, link.Overload)
		return
	}
	if req.Codec == protocol.CodecHTTP {
		var login protocol.Login
		req.Headers, login = protocol.FromLink(req.Headers)
		req.Trailers = protocol.WithoutOwn(req.Trailers)
		ex.NoteLogin(login)
	}
	in.calls.add(ex)
	ex.Begin(in.listener.Fixed, in.listener)
}

// refuse refuses a request whose exchange has not begun.
func (in *input) refuse(ex *exchange.Exchange, why link.Reason) {
	in.host.Refuse(&in.calls, ex, fault.OfReason(why))
	in.Writer.Refused(ex.StreamID, why)
	in.host.Pool.Recycle(ex)
}

// OnReject implements link.RequestHandler. It refuses a request that the reader could not take.
func (in *input) OnReject(id uint64, why link.Reason) { in.reject(id, why, fault.OfReason(why)) }

// reject refuses a request that has not arrived completely. It counts as f.
func (in *input) reject(id uint64, why link.Reason, f *fault.Failure) {
	in.host.Refuse(&in.calls, nil, f)
	in.ending.note(id)
	in.Writer.Refused(id, why)
}

// OnCancel implements link.RequestHandler. The request stays in calls while the application works on it.
func (in *input) OnCancel(id uint64) {
	ex := in.calls.find(id)
	switch {
	case ex == nil: // it has not arrived, or it has its response
		if !in.countUseless() {
			return
		}
		in.Writer.Drop(id)
		in.Writer.CancelAck(id, link.CancelDropped)
	case !ex.Open(): // cancelled before: CANCEL_ACK follows when the application is done
		in.countUseless()
	case ex.Cancel():
		in.Writer.CancelAck(id, link.CancelAtApp)
	default: // ex was recycled
		in.calls.remove(id)
		in.Writer.CancelAck(id, link.CancelDropped)
	}
}

// OnStart implements link.RequestHandler. A request that has ended counts as started.
func (in *input) OnStart(id uint64) {
	ex := in.calls.find(id)
	if ex != nil && ex.AwaitStart() || !in.countUseless() {
		return
	}
	in.Writer.Start(id)
}

// OnWithdraw implements link.RequestHandler.
func (in *input) OnWithdraw(id uint64) {
	if ex := in.calls.find(id); ex != nil {
		ex.Untie()
	}
}

// countUseless counts a CANCEL or START, and closes the link after too many.
func (in *input) countUseless() (open bool) {
	in.useless++
	if in.useless <= spareUseless+uselessPerRequest*in.Reader.Requests() {
		return true
	}
	in.host.Log.Warn("link closed: the peer cancels or asks about more requests than it sends", "peer", in.RemoteAddr())
	in.ending.lose()
	return false
}

// OnProbe implements link.RequestHandler. An ANSWER that waited would be old when it arrives.
func (in *input) OnProbe() {
	to := in.listener.Fixed.Service
	if in.Waits() {
		to.Stats.Probes.Dropped++
		return
	}
	to.Stats.Probes.Answered++
	in.Writer.Answer(linkLoad(to.Load()))
}

// OnStream implements link.RequestHandler.
func (in *input) OnStream(st link.Stream, rest []byte) { in.leaving.take(st, rest) }

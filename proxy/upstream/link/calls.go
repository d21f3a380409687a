package link

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/race"
)

// calls has the attempts in flight on a link: it sends each, and ends each with what the peer says of it. It is their
// race.Carrier, and the handler of the link's Reader.
//
// Calls in: the upstream gives it attempts (send). The client says what the peer allows (setPeer), and fails attempts: those
// that the peer did not accept (rejectAbove), one that holds much memory (drop), and all (unsend, fail).
//
// Calls out: requests go to the Writer. When an attempt has ended, the link may have drained (client.finishDrain).
type calls struct {
	*client
	all      mux.Table[race.Attempt] // lingering ones included
	next     uint64                  // id of the next request
	limit    int                     // requests in flight that the peer allows
	starts   bool                    // the peer has link.FeatureStarts
	response *race.Response          // receives the next response that the Reader decodes

	rejecting bool     // rejectAbove was called
	accepted  []uint64 // ids that it has left on this link, rising; some may have ended
}

func (cs *calls) init(c *client) {
	cs.client, cs.all, cs.next, cs.limit = c, mux.NewTable[race.Attempt](), 1, mux.MaxStreams
}

// setPeer notes what the peer can do.
func (cs *calls) setPeer(peer link.Settings) {
	cs.limit, cs.starts = int(peer.MaxStreams), peer.Features&link.FeatureStarts != 0
}

// len returns the number of calls in flight.
func (cs *calls) len() int { return cs.all.Len() }

// unasked reports whether nobody waits for the response to id.
func (cs *calls) unasked(id uint64) bool { return cs.all.Get(id) == nil }

// send sends a's request, or fails a when the peer allows no more in flight.
func (cs *calls) send(a *race.Attempt) {
	if cs.all.Len() >= cs.limit {
		a.Fail(fault.StreamLimit)
		return
	}
	req := a.Outgoing().Request()
	req.Hold = a.HoldsHead()
	id := cs.next
	cs.next++
	a.Carry(cs, id)
	cs.all.Put(id, a)
	cs.Writer.Request(id, req, req.Deadline-cs.Shard.Loop.Now(), nil)
	cs.Schedule(cs.all.Len() == 1)
}

// Cancel implements race.Carrier. The other sidecar reports the outcome of a.
func (cs *calls) Cancel(a *race.Attempt) (lingers bool) {
	lingers = cs.sendCancel(a)
	cs.finishDrain()
	return lingers
}

func (cs *calls) Abort(a *race.Attempt) {
	cs.abandon(a)
	cs.finishDrain()
}

// Renew implements race.Renewer. A link that is not open yet has a bound of its own.
func (cs *calls) Renew() {
	if cs.State() == linkconn.Open {
		cs.detach()
		cs.drain()
	}
}

func (cs *calls) Buffered(a *race.Attempt) int { return cs.Reader.Assembled(a.ID()) }

// sendCancel sends a CANCEL for a. It reports whether an outcome follows.
func (cs *calls) sendCancel(a *race.Attempt) (lingers bool) {
	if !cs.Writer.Cancel(a.ID()) {
		cs.forget(a)
		return false
	}
	cs.Shard.Stats.Cancels++
	cs.Schedule(cs.all.Len() == 1)
	return true
}

// abandon cancels a without waiting for an outcome, and drops what has arrived for it.
func (cs *calls) abandon(a *race.Attempt) {
	cs.sendCancel(a)
	cs.forget(a)
	cs.Reader.Forget(a.ID())
	cs.Recount()
}

// forget removes a from the table. Frames that still arrive for it are ignored.
func (cs *calls) forget(a *race.Attempt) {
	cs.all.Remove(a.ID())
	a.Detach()
}

// remove removes and returns the attempt with this id, whose outcome has arrived, or nil.
func (cs *calls) remove(id uint64) *race.Attempt {
	a := cs.all.Get(id)
	if a != nil {
		cs.Writer.Drop(id)
		cs.forget(a)
	}
	return a
}

// NewResponse returns the memory for a response, or nil for one that no attempt waits for.
func (cs *calls) NewResponse(id uint64) *protocol.Response {
	a := cs.all.Get(id)
	if a == nil {
		return nil
	}
	if a.Lingering() { // the CANCEL crossed the response
		cs.remove(id)
		a.Finish(true)
		return nil
	}
	cs.response = a.NewResponse()
	return &cs.response.Response
}

func (cs *calls) OnResponse(id uint64, _ *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	res := cs.response
	cs.response = nil
	res.HeadBuffer, res.Codec = buf, codec
	res.Charge()
	a := cs.remove(id)
	if a == nil {
		res.Release()
		return
	}
	if res.StreamToken != nil {
		if a.Outgoing().ToHead() { // a response to HEAD has no body
			res.Release()
			a.Fail(fault.Malformed)
			return
		}
		cs.fetch(a, res)
	}
	a.Respond(res)
}

func (cs *calls) OnInterim(id uint64, res *protocol.Response) {
	if a := cs.all.Get(id); a != nil {
		a.Interim(res)
	}
}

// OnReject fails an attempt whose response the Reader could not take.
func (cs *calls) OnReject(id uint64, why link.Reason) {
	a := cs.all.Get(id)
	if a == nil {
		return
	}
	cs.abandon(a)
	switch why {
	case link.TooLarge:
		a.Fail(fault.ResponseTooLarge)
	case link.DeadlinePassed:
		a.Fail(fault.Deadline)
	default:
		a.Fail(fault.Malformed)
	}
}

// OnCancelAck ends a cancelled attempt that was dropped, or with which the application is
// done. An attempt that is still at the application goes on lingering.
func (cs *calls) OnCancelAck(id uint64, d link.Dropped) {
	if d != link.CancelDropped && d != link.CancelFinished && d != link.CancelClosed {
		if a := cs.all.Get(id); a != nil {
			a.NoteSeen()
		}
		return
	}
	a := cs.remove(id)
	switch {
	case a == nil:
	case !a.Lingering(): // it was not cancelled
		a.Fail(fault.Malformed)
	case d == link.CancelClosed:
		a.Presume()
	case d == link.CancelFinished:
		a.Finish(true)
	default:
		if !a.Seen() {
			cs.Shard.Stats.CancelsSaved++
		}
		a.Finish(false)
	}
}

// OnStart tells a, whose start was asked for, that it has started.
func (cs *calls) OnStart(id uint64) {
	if a := cs.all.Get(id); a != nil {
		a.Started()
	}
}

func (cs *calls) OnRefused(id uint64, why link.Reason) {
	if a := cs.remove(id); a != nil {
		a.Fail(fault.OfReason(why))
	}
}

// rejectAbove fails the attempts that the peer did not accept, those with an id above last. They and all later ones may
// go elsewhere. The first call lists the ids in flight, and further ones only shorten that list, so that each id is
// visited once, however many GOAWAYs arrive: no request is put on the link from the first one on.
func (cs *calls) rejectAbove(last uint64, f *fault.Failure) {
	if !cs.rejecting {
		cs.rejecting = true
		for _, s := range cs.all.InOrder() {
			cs.accepted = append(cs.accepted, s.ID)
		}
	}
	n := len(cs.accepted)
	for n > 0 && cs.accepted[n-1] > last {
		n--
	}
	rejected := cs.accepted[n:]
	cs.accepted = cs.accepted[:n]
	for _, id := range rejected {
		if a := cs.remove(id); a != nil {
			a.Fail(f)
		}
	}
}

// drop fails the attempt with an id, of whose response a part has arrived, with f.
func (cs *calls) drop(id uint64, f *fault.Failure) {
	a := cs.all.Get(id)
	if a == nil {
		cs.Reader.Forget(id)
		cs.Recount()
		return
	}
	cs.abandon(a)
	a.Fail(f)
}

// left is a call that was in flight when its link closed.
type left struct {
	id   uint64
	sent bool // a part of the request was
}

// unsend makes the writer drop all calls, and returns them in order. opened reports whether the link had opened.
func (cs *calls) unsend(opened bool) (all []left) {
	for _, s := range cs.all.InOrder() {
		all = append(all, left{s.ID, opened && cs.Writer.Drop(s.ID)})
	}
	return all
}

// fail fails what unsend has returned with f. A request of which no byte was sent counts as unsent, whatever f says.
func (cs *calls) fail(all []left, f *fault.Failure) {
	for _, l := range all {
		a := cs.all.Get(l.id)
		if a == nil {
			continue // cancelled when an earlier attempt failed
		}
		cs.forget(a)
		if l.sent {
			a.Fail(f)
		} else {
			a.Fail(f.AsUnsent())
		}
	}
}

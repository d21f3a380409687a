package link

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// calls has the requests of a link that began and have not ended. It is their exchange.Caller.
//
// Calls in: input adds a request (add), finds it for a CANCEL (find), and removes it (remove). memory asks what all
// hold (held, requests, largest), and the ending ends them (cancelAll).
//
// Calls out: responses go to the writer of the link. When a request has ended, the ending may be over (ending.finish).
type calls struct {
	*session
	all     mux.Table[exchange.Exchange]
	report  bool // responses wait to be sent: a LOAD goes with them
	fetches bool // the peer fetches response bodies that are streams
	closes  bool // the peer understands link.CancelClosed

	counted   int // bytes of requests and long responses, since the turn of the loop at countedAt
	unread    int // of these, bytes of responses
	countedAt time.Duration
}

func (cs *calls) init(s *session) {
	cs.session = s
	cs.all = mux.NewTable[exchange.Exchange]()
}

// setPeer notes what the peer can do.
func (cs *calls) setPeer(peer link.Settings) {
	cs.fetches = peer.Features&link.FeatureStreams != 0
	cs.closes = peer.Features&link.FeatureCloses != 0
}

// add adds a request that is about to begin.
func (cs *calls) add(ex *exchange.Exchange) {
	cs.all.Put(ex.StreamID, ex)
	ex.Charge()
	cs.counted += ex.Held
}

// find returns the request with an id, or nil.
func (cs *calls) find(id uint64) *exchange.Exchange { return cs.all.Get(id) }

func (cs *calls) remove(id uint64) { cs.all.Remove(id) }

func (cs *calls) len() int { return cs.all.Len() }

// inOrder returns all requests, the oldest first.
func (cs *calls) inOrder() []mux.Entry[exchange.Exchange] { return cs.all.InOrder() }

// cancelAll cancels all requests. The session closes.
func (cs *calls) cancelAll() {
	for _, entry := range cs.all.InOrder() {
		if ex := entry.Value; ex.Open() {
			ex.Cancel()
		}
	}
	cs.all.Clear()
}

// held returns how many bytes requests and waiting responses hold, and how many of these the responses hold. The requests
// in flight are counted once in a turn of the loop, and those that arrive in it are added, also if they end in it: a peer
// can make the loop ask this for each short frame.
func (cs *calls) held() (all, unread int) {
	if now := cs.host.Loop.Now(); now != cs.countedAt {
		cs.countedAt, cs.unread = now, cs.Writer.Waiting()
		cs.counted = cs.unread + cs.requests()
	}
	return cs.counted, cs.unread
}

// requests returns the bytes of the requests, and of their responses so far.
func (cs *calls) requests() (n int) {
	for ex := range cs.all.Each {
		n += ex.Buffered()
	}
	return n
}

// largest returns the request that holds the most, and how many bytes it holds.
func (cs *calls) largest() (ex *exchange.Exchange, held int) { return exchange.LargestOf(cs.all.Each) }

// reportLoad sends the service's load along with responses.
func (cs *calls) reportLoad() {
	if cs.report {
		cs.report = false
		cs.Writer.Load(linkLoad(cs.listener.Fixed.Service.Load()))
	}
}

func linkLoad(l lb.Load) link.Load {
	return link.Load{
		Pending: uint32(l.Pending), Queued: uint32(l.Queued),
		Latency: l.Latency, SinceResponse: l.SinceResponse,
	}
}

var _ exchange.Caller = (*calls)(nil)

// Encode implements exchange.Caller. Frames carry any response, but only a peer with streams
// can fetch a body that is one.
func (cs *calls) Encode(_ *exchange.Exchange, res *race.Response) *fault.Failure {
	if res.Source != nil && !cs.fetches {
		return fault.ResponseTooLarge
	}
	res.Own()
	return nil
}

func (cs *calls) Respond(ex *exchange.Exchange, res *race.Response) {
	cs.remove(ex.StreamID)
	if res.Source != nil {
		cs.respondStream(ex, res)
	} else {
		res.Batch = ex.Request.Batch
		cs.Writer.Response(ex.StreamID, &res.Response, res.Codec, res)
	}
	cs.send()
}

// respondStream sends the head of a response whose body is a stream. The other sidecar fetches
// the body over a connection of its own. When too many bodies wait for that, the request is
// refused as one whose response is too long for a message.
func (cs *calls) respondStream(ex *exchange.Exchange, res *race.Response) {
	src := res.TakeSource()
	var ok bool
	if res.Token, ok = cs.host.Streams.Park(src, ex.Client()); !ok {
		src.Refuse(fault.ResponseTooLarge)
		res.Release()
		shard.ReportStream(cs.host.Shard, exchange.ClientOf(cs), cs.serviceName(), fault.ResponseTooLarge)
		cs.Writer.Refused(ex.StreamID, fault.ResponseTooLarge.Reason())
		return
	}
	cs.host.Stats.Handoffs[stats.HandoffParked]++
	res.StreamToken = res.Token[:]
	res.Charge()
	cs.Writer.Response(ex.StreamID, &res.Response, res.Codec, res)
}

// send sends the last frames of a request, and the load with them. A link that drains closes behind the last of them.
func (cs *calls) send() {
	cs.report = true
	cs.Schedule(cs.all.Len() == 0)
	cs.ending.finish()
}

var _ exchange.InterimCaller = (*calls)(nil)

// Interim implements exchange.InterimCaller.
func (cs *calls) Interim(ex *exchange.Exchange, res *protocol.Response) {
	if cs.Writer.Encoded() <= mux.MaxOutbound {
		cs.Writer.Interim(ex.StreamID, res)
		cs.Schedule(cs.all.Len() == 1)
	}
}

var _ exchange.StartCaller = (*calls)(nil)

// Started implements exchange.StartCaller.
func (cs *calls) Started(ex *exchange.Exchange) {
	cs.Writer.Start(ex.StreamID)
	cs.Schedule(cs.all.Len() == 1)
}

// Fail implements exchange.Caller.
func (cs *calls) Fail(ex *exchange.Exchange, f *fault.Failure) {
	cs.remove(ex.StreamID)
	cs.Writer.Refused(ex.StreamID, f.Refusal(ex.MaybeProcessed()))
	cs.send()
}

// Finished implements exchange.Caller: the last attempt of a cancelled request has ended. A dialer takes CancelFinished and
// CancelClosed for about the time at which the application would have responded, and learns nothing from CancelDropped.
func (cs *calls) Finished(ex *exchange.Exchange, how race.Ended) {
	cs.remove(ex.StreamID)
	if cs.State() == linkconn.Closed {
		return
	}
	what := link.CancelFinished
	switch {
	case how == race.Withdrawn:
		what = link.CancelDropped
	case how == race.Presumed && cs.closes:
		what = link.CancelClosed
	}
	cs.Writer.CancelAck(ex.StreamID, what)
	cs.send()
}

// OverShare implements exchange.Caller.
func (cs *calls) OverShare(ex *exchange.Exchange) bool { return cs.memory.overShare(ex) }

// Concurrency implements exchange.Caller. A link carries the requests of many connections. The other sidecar
// says which of them is alone on its connection.
func (cs *calls) Concurrency(ex *exchange.Exchange, _ int) int {
	if ex.Request.Alone {
		return 1
	}
	return cs.all.Len()
}

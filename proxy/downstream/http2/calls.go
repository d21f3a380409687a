package http2

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// calls has the calls of a connection whose stream or pipe is open. It is the exchange.Caller of their requests, and
// bounds the time of those that wait for the client.
//
// Calls in: input adds a call (add), which removes itself (remove) and says what it waits for (count). watch is called
// when calls may have begun to wait.
//
// Calls out: each call gets its response, or is ended (call.expire, call.drop, call.cancel).
type calls struct {
	*session
	all       []*call              // call.index is the index of each
	pending   int                  // whose request is incomplete, or whose response waits for the client
	cancelled []*exchange.Exchange // that the application still works on; CallIndex is the index of each

	timer loop.Timer // armed while calls are pending
	due   loop.Due
}

const maxFree = 4096 // calls that a loop keeps for the next requests

func (cs *calls) init(s *session) {
	cs.session = s
	cs.timer.Fire = cs.onTimer
}

// add adds the call of a new stream.
func (cs *calls) add(st *http2.Stream) *call {
	var c *call
	if n := len(cs.free); n > 0 {
		c, cs.free = cs.free[n-1], cs.free[:n-1]
	} else {
		c = &call{}
	}
	*c = call{session: cs.session, index: len(cs.all), stream: st, ex: cs.host.Pool.Exchange(cs)}
	cs.pending++
	cs.all = append(cs.all, c)
	st.Owner = c
	return c
}

// remove removes a call whose stream is over and whose pipe is closed. The last one in the list
// gets its place.
func (cs *calls) remove(c *call) {
	if c.stream != nil || c.pipe != nil {
		return
	}
	if c.state.pends() {
		cs.pending--
	}
	if cs.all != nil { // else the session closes
		last := len(cs.all) - 1
		moved := cs.all[last]
		cs.all[c.index], cs.all[last] = moved, nil
		moved.index = c.index
		if moved.ex != nil {
			moved.ex.CallIndex = moved.index
		}
		cs.all = cs.all[:last]
	}
	*c = call{}
	if len(cs.free) < maxFree {
		cs.free = append(cs.free, c)
	}
}

// count notes that a call has changed its state.
func (cs *calls) count(from, to callState) {
	if from.pends() {
		cs.pending--
	}
	if to.pends() {
		cs.pending++
	}
}

func (cs *calls) len() int { return len(cs.all) }

// cancelIncomplete cancels the calls whose requests will not be complete.
func (cs *calls) cancelIncomplete() {
	for i := len(cs.all) - 1; i >= 0; i-- { // cancel may remove the call
		if c := cs.all[i]; c.stream != nil && !c.stream.Ended() {
			cs.codec.Reset(c.stream, http2.Cancel)
			c.cancel()
		}
	}
}

// cancelAll cancels all calls. The session closes.
func (cs *calls) cancelAll() {
	cs.host.Loop.Stop(&cs.timer)
	all := cs.all
	cs.all = nil
	for _, c := range all {
		c.cancel()
	}
}

// inFlight returns the exchanges that have begun.
func (cs *calls) inFlight() (all []*exchange.Exchange) {
	for _, c := range cs.all {
		if c.ex != nil && c.state != receiving {
			all = append(all, c.ex)
		}
	}
	return all
}

// held returns the bytes that all calls hold, and of these those of responses that wait for the client to read.
func (cs *calls) held() (all, unread int) {
	for _, c := range cs.all {
		n := c.held()
		all += n
		if c.state == sending {
			unread += n
		}
	}
	return all + cs.extra(), unread
}

// callBytes is what a call counts as beside its message while it waits for the client. Whoever opens a
// stream with a few bytes makes the loop keep an exchange for it. Limits of services bound the calls that
// wait for an endpoint.
const callBytes = 2 << 10

// extra returns the bytes that pending calls count as beside their messages.
func (cs *calls) extra() int { return cs.pending * callBytes }

// largest returns the call that holds the most, if that is shard.LeastShed or more, else nil.
func (cs *calls) largest() (largest *call) {
	most := shard.LeastShed - 1
	for _, c := range cs.all {
		if n := c.held(); n > most {
			largest, most = c, n
		}
	}
	return largest
}

// watch makes onTimer run soon if calls are pending.
func (cs *calls) watch() {
	if cs.pending == 0 || cs.ending.over() {
		return
	}
	due := loop.Due(cs.host.Loop.Now() + race.GRPCStreamAfter)
	if cs.timer.Armed() && cs.due <= due {
		return
	}
	cs.due = due
	cs.host.Loop.After(race.GRPCStreamAfter, &cs.timer)
}

// onTimer ends what has taken too long, and makes streams of incomplete requests.
func (cs *calls) onTimer() {
	now, next := cs.host.Loop.Now(), time.Duration(math.MaxInt64)
	if cs.due.PutOff(now) { // what came meanwhile may be the rest of the requests
		cs.host.Loop.After(0, &cs.timer)
		return
	}
	for i := 0; i < len(cs.all); {
		c := cs.all[i]
		if !c.state.pends() || c.stream == nil {
			i++
			continue
		}
		if due := c.due(); due > now {
			next = min(next, due)
			i++
			continue
		}
		c.expire(now) // is due later then, or the last call has its place
		if cs.ending.over() {
			return
		}
	}
	if next < math.MaxInt64 {
		cs.due = loop.Due(next)
		cs.host.Loop.After(next-now, &cs.timer)
	}
	cs.memory.recount()
	cs.output.schedule(false)
}

var _ exchange.Caller = (*calls)(nil)

// Encode implements exchange.Caller. The head of a stream is in the loop's scratch memory until
// Respond.
func (cs *calls) Encode(ex *exchange.Exchange, res *race.Response) *fault.Failure {
	res.Own()
	downstream.AddRequestID(&res.Response, ex.RequestID)
	if ex.Route.Edits != nil {
		downstream.EditResponse(ex, &res.Response, &cs.origin)
	}
	if res.Source == nil {
		return nil
	}
	head := res.StreamHead()
	cs.host.Scratch = http1.AppendStreamResponse(cs.host.Scratch[:0], &res.Response, &head, 1)
	if len(cs.host.Scratch) == 0 {
		return fault.Malformed
	}
	return nil
}

func (cs *calls) Respond(ex *exchange.Exchange, res *race.Response) {
	c := cs.all[ex.CallIndex]
	c.ex = nil
	if res.Source != nil {
		c.respondStream(res)
		return
	}
	res.Batch = ex.Request.Batch
	c.respond(&res.Response, res)
}

var _ exchange.InterimCaller = (*calls)(nil)

// Interim implements exchange.InterimCaller.
func (cs *calls) Interim(ex *exchange.Exchange, res *protocol.Response) {
	if cs.codec.Encoded() <= mux.MaxOutbound {
		cs.codec.Interim(cs.all[ex.CallIndex].stream, res)
		cs.output.schedule(len(cs.all) == 1)
	}
}

// Fail implements exchange.Caller.
func (cs *calls) Fail(ex *exchange.Exchange, f *fault.Failure) {
	cs.all[ex.CallIndex].respondFailure(ex, downstream.WithHost(ex, f))
}

// Concurrency implements exchange.Caller. Cancelled requests count for as long as the application works on them. Streams
// that have left the loop do not count.
func (cs *calls) Concurrency(ex *exchange.Exchange, most int) int {
	return exchange.Together(ex, most, func(yield func(*exchange.Exchange) bool) {
		for _, c := range cs.all {
			if !yield(c.ex) {
				return
			}
		}
		for _, ex := range cs.cancelled {
			if !yield(ex) {
				return
			}
		}
	})
}

// OverShare implements exchange.Caller.
func (cs *calls) OverShare(ex *exchange.Exchange) bool { return cs.memory.overShare(ex) }

// keepCancelled keeps a request that the client has cancelled until Finished.
func (cs *calls) keepCancelled(ex *exchange.Exchange) {
	ex.CallIndex = len(cs.cancelled)
	cs.cancelled = append(cs.cancelled, ex)
}

// Finished implements exchange.Caller. The client has forgotten the request. The last one
// of those that are cancelled gets its place.
func (cs *calls) Finished(ex *exchange.Exchange, _ race.Ended) {
	last := len(cs.cancelled) - 1
	cs.cancelled[ex.CallIndex] = cs.cancelled[last]
	cs.cancelled[ex.CallIndex].CallIndex = ex.CallIndex
	cs.cancelled[last] = nil
	cs.cancelled = cs.cancelled[:last]
}

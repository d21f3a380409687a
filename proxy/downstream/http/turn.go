package http

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

// turn processes the requests of a session one after another, and writes their responses. So responses keep the
// order, and the second request of a client sees the effects of the first (RFC 9112 section 9.3.2).
//
// Calls in: input and leaving add calls (add), the session lets the first one begin (next), and the ending ends them
// (retire, stop). As the exchange.Caller of all requests the turn gets the responses.
//
// Calls out: a call that leaves goes to leaving.leave when it is its turn, and a response that is a stream to
// leaving.answer. input.onResponded hears of each response that was written.
type turn struct {
	*session
	calls []call // received, in order; state is about the first
	state turnState

	// starting reports whether next is running. It is no state: a request that gets its
	// response at once makes the turn idle meanwhile, and must not run it a second time.
	starting bool

	// retiring reports whether the next response is the last. It is no state: Retire and
	// Drain set it in any state, and an idle session still waits for a request.
	retiring bool

	room *loop.Flush // deferred when a slow client has read; nil before the first time
}

// call is a received request that has no response yet.
type call struct {
	ex     *exchange.Exchange       // nil for input that is no request, and once it has its response
	res    *race.Response           // its Body is what was not written yet; nil for none
	stream *downstream.StreamAnswer // the response that waits to leave the loop with the connection; nil for none
	refuse *fault.Failure           // the response to it, the last one of the connection; nil for none
	end    behind
	leaves bool  // it leaves the loop with the connection, as incoming.handoff says
	toHead bool  // it is a HEAD
	minor  uint8 // of its version, HTTP/1.x
}

// behind is what becomes of a connection behind a response.
type behind uint8

const (
	keepOpen   behind = iota // the client may send the next request
	thenDrain                // the connection closes with Drain: the client may have sent more
	thenFinish               // the connection closes with Finish: the client expects it, and has sent all of the request
)

func (c *call) flags() http1.ResponseFlags {
	return http1.ResponseFlags{Minor: int(c.minor), Close: c.end != keepOpen, ToHead: c.toHead}
}

// add adds the last call that was received.
func (t *turn) add(c call) {
	if t.calls == nil {
		t.calls, _ = t.host.freeCalls.Take()
	}
	t.calls = append(t.calls, c)
}

// waiting returns the number of calls that have no response.
func (t *turn) waiting() int { return len(t.calls) }

// first returns the first call, valid until it is removed.
func (t *turn) first() *call { return &t.calls[0] }

// last returns the call that was added last, valid until another is added.
func (t *turn) last() *call { return &t.calls[len(t.calls)-1] }

// remove removes the first call, and returns how many are left.
func (t *turn) remove() int {
	n := copy(t.calls, t.calls[1:])
	t.calls[n] = call{}
	t.calls = t.calls[:n]
	if n == 0 {
		if cap(t.calls) <= maxFreeCalls {
			t.host.freeCalls.Put(t.calls)
		}
		t.calls = nil
	}
	return n
}

// next begins the next calls as long as none is in flight.
func (t *turn) next() {
	if t.starting {
		return
	}
	t.starting = true
	for t.state == turnIdle && len(t.calls) > 0 && !t.peerIsSlow() {
		if c := &t.calls[0]; !c.leaves {
			t.begin(c)
		} else if t.leaving().leave(c) {
			break
		}
	}
	t.starting = false
}

func (t *turn) begin(c *call) {
	t.state.become(turnBusy)
	ex := c.ex
	if f := c.refuse; f != nil {
		exchange.RecordRefused(t.host.Shard, t, ex, f)
		t.Fail(ex, f)
		if ex != nil {
			t.host.Pool.Recycle(ex)
		}
		return
	}
	// The route of a request that was to leave, could have been passed on, or waited
	// for 100 Continue, was found with its head. A reload meanwhile does not change that.
	r := ex.Route
	if r == nil {
		r = t.findRoute(ex, int(c.minor))
	} else {
		downstream.FilterTrailers(&ex.Request, &t.origin)
	}
	ex.Route = nil // until Begin has admitted it
	ex.Begin(r, t.origin.Listener)
}

// skip ends the first call, whose response is already in out.
func (t *turn) skip(out string) {
	t.state.become(turnBusy)
	t.remove()
	t.outbound.Write([]byte(out))
	t.outbound.Watch()
	t.state.become(turnIdle)
}

// peerIsSlow reports whether the next request must wait for the client to read. A request that
// is to leave waits until all is read. onRoom calls next again then.
func (t *turn) peerIsSlow() bool {
	room := maxUnread
	if t.calls[0].leaves {
		room = 0
	}
	if t.outbound.Conn.Buffered() <= room {
		return false
	}
	t.awaitRoom(room)
	return true
}

// maxUnread is the largest number of unread bytes with which the next pipelined request may begin.
const maxUnread = 256 << 10

// awaitRoom makes onRoom run when a slow client has left at most left bytes unread.
func (t *turn) awaitRoom(left int) {
	if t.room == nil {
		t.room = &loop.Flush{Do: t.onRoom}
	}
	t.outbound.Conn.AwaitRoom(left, t.room)
}

// onRoom goes on after a slow client has read. The session may have ended meanwhile.
func (t *turn) onRoom() {
	switch {
	case t.state == turnHandoff:
		l := t.leaving()
		l.sendStream(t.first(), l.descriptorUntil())
	case t.state == turnBusy && t.calls[0].res != nil:
		t.writePieces()
	default:
		t.next()
	}
}

var _ exchange.Caller = (*turn)(nil)

// Encode implements exchange.Caller. The head is in the loop's scratch memory until Respond.
func (t *turn) Encode(ex *exchange.Exchange, res *race.Response) *fault.Failure {
	downstream.AddRequestID(&res.Response, ex.RequestID)
	if ex.Route.Edits != nil {
		res.Own()
		downstream.EditResponse(ex, &res.Response, &t.origin)
	}
	out := t.host.Scratch[:0]
	if res.Source != nil {
		head := res.StreamHead()
		out = http1.AppendStreamResponse(out, &res.Response, &head, int(t.calls[0].minor))
	} else {
		out = http1.AppendResponseHead(out, &res.Response, t.decideEnd())
	}
	t.host.Scratch = out
	if len(out) == 0 {
		return fault.Malformed
	}
	return nil
}

// decideEnd decides whether the connection closes after the response to the first call, and
// returns how that is framed.
func (t *turn) decideEnd() http1.ResponseFlags {
	c := &t.calls[0]
	if c.end == keepOpen && (t.retiring || t.host.Process.Draining.Load()) {
		c.end = thenDrain
	}
	return c.flags()
}

func (t *turn) Respond(_ *exchange.Exchange, res *race.Response) {
	c := &t.calls[0]
	if res.Source != nil {
		c.ex, c.end = nil, max(c.end, thenDrain)
		t.state.become(turnHandoff)
		t.leaving().answer(c, res)
		return
	}
	out, flags := t.host.Scratch, c.flags()
	if len(res.Body) > http1.WriteTogether && len(res.Trailers) == 0 && http1.HasBody(&res.Response, flags) {
		if len(res.Body) > pieceSize && res.Shares() {
			t.outbound.Write(out)
			t.host.KeepScratch(out)
			c.ex, c.res = nil, res
			t.writePieces()
			return
		}
		t.outbound.WriteBoth(out, res.Body)
	} else {
		out = http1.AppendResponseBody(out, &res.Response, flags)
		t.outbound.Write(out)
	}
	t.host.KeepScratch(out)
	res.Release()
	t.onResponded()
}

var _ exchange.InterimCaller = (*turn)(nil)

// Interim implements exchange.InterimCaller. HTTP/1.0 knows none (RFC 9110 section 15.2).
func (t *turn) Interim(_ *exchange.Exchange, res *protocol.Response) {
	if t.calls[0].minor == 0 || t.outbound.Conn.Buffered() > maxUnread {
		return
	}
	out := http1.AppendInterim(t.host.Scratch[:0], res)
	t.outbound.Write(out)
	t.host.KeepScratch(out)
	t.outbound.Watch()
}

// The connection copies what its client does not read. So a long body that is shared is written in pieces,
// and the next one when at most unreadPieces of those before are left.
const (
	pieceSize    = 256 << 10
	unreadPieces = 64 << 10
)

// writePieces writes the body of the first call's response as far as the client reads it.
func (t *turn) writePieces() {
	res := t.calls[0].res
	for len(res.Body) > 0 {
		if t.outbound.Conn.Buffered() > unreadPieces {
			t.outbound.Watch()
			t.awaitRoom(unreadPieces)
			return
		}
		n := min(len(res.Body), pieceSize)
		t.outbound.Write(res.Body[:n])
		res.Body = res.Body[n:]
	}
	res.Release()
	t.calls[0].res = nil
	t.onResponded()
}

// Fail implements exchange.Caller. ex is nil when the input was no request.
func (t *turn) Fail(ex *exchange.Exchange, f *fault.Failure) {
	var id []byte
	if ex != nil {
		id, f = ex.RequestID, downstream.WithHost(ex, f)
	}
	out := downstream.AppendFailure(t.host.Scratch[:0], f, t.host.DateValue(), id, t.decideEnd())
	t.outbound.Write(out)
	t.host.KeepScratch(out)
	t.onResponded()
}

// OverShare implements exchange.Caller.
func (t *turn) OverShare(*exchange.Exchange) bool { return t.memory().overShare() }

// Finished implements exchange.Caller. HTTP/1.1 has no word for it.
func (t *turn) Finished(*exchange.Exchange, race.Ended) {}

// Concurrency implements exchange.Caller. Pipelined requests wait for the one that is in flight.
func (t *turn) Concurrency(*exchange.Exchange, int) int { return 1 }

// onResponded removes the first call, whose response was written, and begins the next one.
func (t *turn) onResponded() {
	end := t.calls[0].end
	if end == thenFinish && !t.input.blank() {
		end = thenDrain
	}
	t.state.become(turnIdle)
	t.outbound.Watch()
	n := t.remove()
	switch end {
	case thenDrain:
		t.ending().drainAndClose()
		return
	case thenFinish:
		t.ending().close()
		t.outbound.Conn.Finish()
		return
	}
	t.input.onResponded(n == 0)
	t.next()
}

// stop ends all calls. It cancels the request in flight.
func (t *turn) stop() {
	busy := t.state == turnBusy
	t.state.become(turnClosed)
	calls := t.calls
	t.calls = nil
	for i, c := range calls {
		switch {
		case c.stream != nil:
			c.stream.Source.Close()
		case c.res != nil:
			c.res.Release()
		case c.ex == nil:
		case i == 0 && busy:
			c.ex.Cancel()
		default:
			t.host.Pool.Recycle(c.ex)
		}
	}
}

// retire makes the next response the last.
func (t *turn) retire() { t.retiring = true }

// handsOff reports whether a response waits to leave the loop.
func (t *turn) handsOff() bool { return t.state == turnHandoff }

func (t *turn) closed() bool { return t.state == turnClosed }

// unused reports whether the turn has no call, and more may come.
func (t *turn) unused() bool { return t.state == turnIdle && len(t.calls) == 0 && !t.retiring }

// inFlight returns the request that is in flight, or nil.
func (t *turn) inFlight() *exchange.Exchange {
	if t.state != turnBusy {
		return nil
	}
	return t.calls[0].ex
}

// held returns the bytes of the calls and their responses.
func (t *turn) held() (n int) {
	for _, c := range t.calls {
		switch {
		case c.res != nil:
			n += c.res.Buffered()
		case c.ex != nil:
			n += c.ex.Buffered()
		}
	}
	return n
}

// heldByStream returns the bytes of a stream that waits to leave.
func (t *turn) heldByStream() int {
	if t.state != turnHandoff || t.calls[0].stream == nil {
		return 0
	}
	return protocol.Held(t.calls[0].stream.Source.Buffer)
}

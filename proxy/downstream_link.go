package proxy

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// linkSession is the accepting end of one link: another sidecar's requests for
// the service of this listener.
type linkSession struct {
	linkConn
	worker  *host
	door    *listener                 // with a route
	streams linkStreamTable[exchange] // begun and not over
	cur     *exchange                 // what the Reader decodes into
	newest  uint64                    // highest id that was complete or rejected
	report  bool                      // answers are waiting: LOAD goes with them
	fetches bool                      // the peer comes for the bodies of answers that are streams
	cancels int                       // of requests that are over, that the peer may still send
	sessionLink
}

// A dialler withdraws a request at most twice: when it needs it no more, and when
// it gives up waiting for what became of it. One that does so much more often has
// a loop busy with nothing.
const (
	cancelsPerRequest = 2
	spareCancels      = 256
)

// linkAcceptor makes the sessions of links on one loop.
type linkAcceptor struct{ w *host }

func newLinkAcceptor(w *host) acceptor { return linkAcceptor{w} }

func (l linkAcceptor) accept(at *listener) Stream { return newLinkSession(l.w, at) }

func newLinkSession(w *host, at *listener) *linkSession {
	s := &linkSession{worker: w, door: at, streams: newLinkStreamTable[exchange](), cancels: spareCancels}
	s.init(w.shard, link.Acceptor, s, s.crowded)
	return s
}

func (s *linkSession) at() *listener { return s.door }

func (s *linkSession) peer() string { return s.conn.RemoteAddr() }

// retire is drain: what a GOAWAY turns away is sent elsewhere.
func (s *linkSession) retire() { s.drain() }

// opaque tells that the service takes streams of bytes, and no requests.
func (s *linkSession) opaque() bool { return s.door.direct.svc.opaque() }

func (s *linkSession) carried() int { return s.streams.len() }

// prepare puts the service's load beside the answers that leave.
func (s *linkSession) prepare() {
	if s.report {
		s.report = false
		s.w.Load(linkLoad(s.door.direct.svc.load()))
	}
}

func (s *linkSession) lost() {
	s.close()
	s.conn.Close()
}

// idled closes by way of a GOAWAY: a request that is on its way meanwhile was
// surely not processed then.
func (s *linkSession) idled() {
	if s.state == linkOpen {
		s.drain()
		return
	}
	s.lost()
}

func (s *linkSession) OnOpen(c Conn) {
	s.opened(c)
	s.worker.add(s)
}

func (s *linkSession) OnData(b []byte) {
	if s.state == linkClosed {
		return
	}
	if !s.feed(b) {
		if s.broken == link.ErrVersion {
			s.conn.Write(link.AppendRefusal(nil))
			s.conn.Drain()
		} else {
			s.conn.Close()
		}
		s.close()
		return
	}
	s.finishDrain()
}

func (s *linkSession) OnClose(error) {
	s.close()
	s.worker.closed(s)
}

// OnPreface answers the dialler's.
func (s *linkSession) OnPreface(version uint8, peer link.Settings) {
	s.w.Preface(link.Acceptor, linkSettings(s.worker.shared))
	s.fetches = peer.Features&link.FeatureStreams != 0
	s.w.Open(version, peer)
	s.state = linkOpen
	s.worker.shared.links.Add(1) // before the look at draining: Links relies on it
	s.door.links.Add(1)
	if s.door.shut || s.worker.shared.draining.Load() {
		s.drain()
	}
}

func (s *linkSession) NewRequest(uint64) *protocol.Request {
	if s.cur == nil {
		s.cur = s.worker.pool.exchange(s)
	}
	return &s.cur.req
}

func (s *linkSession) OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer) {
	ex := s.cur
	s.cur = nil
	s.newest = max(s.newest, id) // a long message ends after shorter, newer ones
	s.cancels += cancelsPerRequest
	ex.head, ex.tag = buf, id
	if ttl > 0 {
		req.Deadline = s.worker.loop.Now() + ttl
	}
	switch {
	case s.state == linkDraining:
		s.turnAway(id, ex, link.Draining)
		return
	case s.opaque():
		s.turnAway(id, ex, link.NoService)
		return
	case s.streams.len() >= maxStreams:
		s.turnAway(id, ex, link.Overload)
		return
	}
	s.streams.put(id, ex)
	ex.hold()
	ex.begin(s.door.direct, s.door)
}

// turnAway refuses a request that has not begun.
func (s *linkSession) turnAway(id uint64, ex *exchange, why link.Reason) {
	logRefused(&s.worker.access, s, ex, FailureOf(why))
	s.worker.pool.recycle(ex)
	s.w.Refused(id, why)
}

// NewResponse is for the other end.
func (s *linkSession) NewResponse(uint64) *protocol.Response { return nil }

// OnResponse is for the other end.
func (s *linkSession) OnResponse(uint64, *protocol.Response, protocol.Codec, *bytebufferpool.ByteBuffer) {
}

func (s *linkSession) OnReject(id uint64, why link.Reason) {
	logRefused(&s.worker.access, s, nil, FailureOf(why))
	s.newest = max(s.newest, id)
	s.cancels += cancelsPerRequest
	s.w.Refused(id, why)
}

// OnCancel withdraws a request. What the application already works on stays
// counted until it has answered.
func (s *linkSession) OnCancel(id uint64) {
	ex := s.streams.get(id)
	switch {
	case ex == nil: // in reassembly, or answered already
		if s.r.Assembled(id) > 0 {
			s.cancels += cancelsPerRequest
		}
		if !s.mayCancel() {
			return
		}
		s.r.Forget(id)
		s.w.Drop(id)
		s.w.CancelAck(id, link.CancelDropped)
	case !ex.active(): // cancelled twice: the acknowledgement is on its way
		s.mayCancel()
	case ex.cancel():
		s.w.CancelAck(id, link.CancelAtApp)
	default:
		s.streams.remove(id)
		s.w.CancelAck(id, link.CancelDropped)
	}
}

// mayCancel counts a CANCEL of what is over, and closes the link for too many.
func (s *linkSession) mayCancel() bool {
	s.cancels--
	if s.cancels >= 0 {
		return true
	}
	s.worker.log.Warn("link closed: the peer withdraws more than it has asked for", "peer", s.conn.RemoteAddr())
	s.lost()
	return false
}

// OnCancelAck is for the other end.
func (s *linkSession) OnCancelAck(uint64, link.Dropped) {}

// OnRefused is for the other end.
func (s *linkSession) OnRefused(uint64, link.Reason) {}

// OnGoAway: the dialler will send nothing more; it closes when it is done.
func (s *linkSession) OnGoAway(uint64, link.Reason) {}

// OnLoad is for the other end.
func (s *linkSession) OnLoad(link.Load) {}

// encode implements replier. Frames carry any answer, but not to everybody its body
// where that is a stream.
func (s *linkSession) encode(_ *exchange, ans *answer) *Failure {
	if ans.stream != nil && !s.fetches {
		return FailTooLarge
	}
	return nil
}

func (s *linkSession) reply(ex *exchange, ans *answer) {
	s.streams.remove(ex.tag)
	if ans.stream != nil {
		s.replyStream(ex, ans)
	} else {
		s.w.Response(ex.tag, &ans.Response, ans.codec, ans)
	}
	s.report = true
	s.schedule(s.streams.len() == 0)
}

func (s *linkSession) fail(ex *exchange, f *Failure) {
	s.streams.remove(ex.tag)
	s.w.Refused(ex.tag, f.refusal(ex.reached))
	s.report = true
	s.schedule(s.streams.len() == 0)
}

// over: the application has finished a request that was withdrawn.
func (s *linkSession) over(ex *exchange) {
	s.streams.remove(ex.tag)
	if s.state == linkClosed {
		return
	}
	s.w.CancelAck(ex.tag, link.CancelFinished)
	s.report = true
	s.schedule(s.streams.len() == 0)
	s.finishDrain()
}

// drain tells the peer to send no more, and closes once all is answered.
func (s *linkSession) drain() {
	if s.state == linkOpen {
		s.state = linkDraining
		s.w.GoAway(s.newest, link.Draining)
		s.flush()
	}
	s.finishDrain()
}

// finishDrain closes when the last answer has left and nothing is in reassembly:
// the dialler goes on sending what the GOAWAY covers, and has to be told that it
// was not processed. The dialler usually closes first, once it has all that it
// asked for.
func (s *linkSession) finishDrain() {
	if s.state == linkDraining && s.streams.len() == 0 && s.w.Queued() == 0 && s.r.Buffered() == 0 {
		s.conn.Drain()
		s.close()
	}
}

// close withdraws what the peer asked for and can't be told any more.
func (s *linkSession) close() {
	if s.state == linkClosed {
		return
	}
	if s.state != linkOpening {
		s.worker.shared.links.Add(-1)
		s.door.links.Add(-1)
	}
	s.shut()
	if s.cur != nil {
		s.worker.pool.recycle(s.cur)
		s.cur = nil
	}
	for _, carried := range s.streams.inOrder() {
		if ex := carried.value; ex.active() {
			ex.cancel()
		}
	}
	s.streams.clear()
}

func linkLoad(l lb.Load) link.Load {
	return link.Load{
		Pending: uint32(l.Pending), Queued: uint32(l.Queued),
		Latency: l.Latency, SinceAnswer: l.SinceAnswer,
	}
}

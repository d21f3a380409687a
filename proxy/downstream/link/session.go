package link

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// session is the accepting end of one link: another sidecar's requests for
// the service of this listener.
type session struct {
	linkconn.Conn
	host     *downstream.Host
	listener *exchange.Listener           // with a route
	streams  mux.Table[exchange.Exchange] // begun and not over
	cur      *exchange.Exchange           // what the Reader decodes into
	newest   uint64                       // highest id that was complete or rejected
	report   bool                         // answers are waiting: LOAD goes with them
	fetches  bool                         // the peer comes for the bodies of answers that are streams
	cancels  int                          // of requests that are over, that the peer may still send
	downstream.SessionNode
}

// A dialler withdraws a request at most twice: when it needs it no more, and when
// it gives up waiting for what became of it. One that does so much more often has
// a loop busy with nothing.
const (
	cancelsPerRequest = 2
	spareCancels      = 256
)

// acceptor makes the sessions of links on one loop.
type acceptor struct{ w *downstream.Host }

func NewAcceptor(w *downstream.Host) downstream.Acceptor { return acceptor{w} }

func (l acceptor) Accept(at *exchange.Listener) loop.Stream { return newSession(l.w, at) }

func newSession(w *downstream.Host, at *exchange.Listener) *session {
	s := &session{host: w, listener: at, streams: mux.NewTable[exchange.Exchange](), cancels: spareCancels}
	s.Init(w.Shard, link.Acceptor, s, s.overBudget)
	return s
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.Transport.RemoteAddr() }

// Retire is drain: what a GOAWAY turns away is sent elsewhere.
func (s *session) Retire() { s.Drain() }

// opaque tells that the service takes streams of bytes, and no requests.
func (s *session) opaque() bool { return s.listener.Direct.Service.Opaque() }

func (s *session) InFlight() int { return s.streams.Len() }

// BeforeFlush puts the service's load beside the answers that leave.
func (s *session) BeforeFlush() {
	if s.report {
		s.report = false
		s.Writer.Load(linkLoad(s.listener.Direct.Service.Load()))
	}
}

func (s *session) OnLost() {
	s.close()
	s.Transport.Close()
}

// OnIdle closes by way of a GOAWAY: a request that is on its way meanwhile was
// surely not processed then.
func (s *session) OnIdle() {
	if s.State() == linkconn.Open {
		s.Drain()
		return
	}
	s.OnLost()
}

func (s *session) OnOpen(c loop.Conn) {
	s.Opened(c)
	s.host.Add(s)
}

func (s *session) OnData(b []byte) {
	if s.State() == linkconn.Closed {
		return
	}
	if !s.Receive(b) {
		if s.Broken == link.ErrVersion {
			s.Transport.Write(link.AppendRefusal(nil))
			s.Transport.Drain()
		} else {
			s.Transport.Close()
		}
		s.close()
		return
	}
	s.finishDrain()
}

func (s *session) OnClose(error) {
	s.close()
	s.host.Closed(s)
}

// OnPreface answers the dialler's.
func (s *session) OnPreface(version uint8, peer link.Settings) {
	s.Writer.Preface(link.Acceptor, linkconn.Settings(s.host.Process))
	s.fetches = peer.Features&link.FeatureStreams != 0
	s.Establish(version, peer)
	s.host.Process.Links.Add(1) // before the look at draining: Links relies on it
	s.listener.Links.Add(1)
	if s.listener.Closing || s.host.Process.Draining.Load() {
		s.Drain()
	}
}

func (s *session) NewRequest(uint64) *protocol.Request {
	if s.cur == nil {
		s.cur = s.host.Pool.Exchange(s)
	}
	return &s.cur.Request
}

func (s *session) OnRequest(id uint64, req *protocol.Request, ttl time.Duration, buf *bytebufferpool.ByteBuffer) {
	ex := s.cur
	s.cur = nil
	s.newest = max(s.newest, id) // a long message ends after shorter, newer ones
	s.cancels += cancelsPerRequest
	ex.HeadBuffer, ex.StreamID = buf, id
	if ttl > 0 {
		req.Deadline = s.host.Loop.Now() + ttl
	}
	switch {
	case s.State() == linkconn.Draining:
		s.refuse(id, ex, link.Draining)
		return
	case s.opaque():
		s.refuse(id, ex, link.NoService)
		return
	case s.streams.Len() >= mux.MaxStreams:
		s.refuse(id, ex, link.Overload)
		return
	}
	s.streams.Put(id, ex)
	ex.Hold()
	ex.Begin(s.listener.Direct, s.listener)
}

// refuse refuses a request that has not begun.
func (s *session) refuse(id uint64, ex *exchange.Exchange, why link.Reason) {
	exchange.LogRefused(&s.host.AccessLog, s, ex, fault.OfReason(why))
	s.host.Pool.Recycle(ex)
	s.Writer.Refused(id, why)
}

// NewResponse is for the other end.
func (s *session) NewResponse(uint64) *protocol.Response { return nil }

// OnResponse is for the other end.
func (s *session) OnResponse(uint64, *protocol.Response, protocol.Codec, *bytebufferpool.ByteBuffer) {
}

func (s *session) OnReject(id uint64, why link.Reason) {
	exchange.LogRefused(&s.host.AccessLog, s, nil, fault.OfReason(why))
	s.newest = max(s.newest, id)
	s.cancels += cancelsPerRequest
	s.Writer.Refused(id, why)
}

// OnCancel withdraws a request. What the application already works on stays
// counted until it has answered.
func (s *session) OnCancel(id uint64) {
	ex := s.streams.Get(id)
	switch {
	case ex == nil: // in reassembly, or answered already
		if s.Reader.Assembled(id) > 0 {
			s.cancels += cancelsPerRequest
		}
		if !s.mayCancel() {
			return
		}
		s.Reader.Forget(id)
		s.Writer.Drop(id)
		s.Writer.CancelAck(id, link.CancelDropped)
	case !ex.Open(): // cancelled twice: the acknowledgement is on its way
		s.mayCancel()
	case ex.Cancel():
		s.Writer.CancelAck(id, link.CancelAtApp)
	default:
		s.streams.Remove(id)
		s.Writer.CancelAck(id, link.CancelDropped)
	}
}

// mayCancel counts a CANCEL of what is over, and closes the link for too many.
func (s *session) mayCancel() bool {
	s.cancels--
	if s.cancels >= 0 {
		return true
	}
	s.host.Log.Warn("link closed: the peer withdraws more than it has asked for", "peer", s.Transport.RemoteAddr())
	s.OnLost()
	return false
}

// OnCancelAck is for the other end.
func (s *session) OnCancelAck(uint64, link.Dropped) {}

// OnRefused is for the other end.
func (s *session) OnRefused(uint64, link.Reason) {}

// OnGoAway: the dialler will send nothing more; it closes when it is done.
func (s *session) OnGoAway(uint64, link.Reason) {}

// OnLoad is for the other end.
func (s *session) OnLoad(link.Load) {}

// Encode implements replier. Frames carry any answer, but not to everybody its body
// where that is a stream.
func (s *session) Encode(_ *exchange.Exchange, ans *exchange.Response) *fault.Failure {
	if ans.Source != nil && !s.fetches {
		return fault.ResponseTooLarge
	}
	return nil
}

func (s *session) Respond(ex *exchange.Exchange, ans *exchange.Response) {
	s.streams.Remove(ex.StreamID)
	if ans.Source != nil {
		s.replyStream(ex, ans)
	} else {
		s.Writer.Response(ex.StreamID, &ans.Response, ans.Codec, ans)
	}
	s.report = true
	s.Schedule(s.streams.Len() == 0)
}

func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	s.streams.Remove(ex.StreamID)
	s.Writer.Refused(ex.StreamID, f.Refusal(ex.MaybeProcessed))
	s.report = true
	s.Schedule(s.streams.Len() == 0)
}

// Finished: the application has finished a request that was withdrawn.
func (s *session) Finished(ex *exchange.Exchange) {
	s.streams.Remove(ex.StreamID)
	if s.State() == linkconn.Closed {
		return
	}
	s.Writer.CancelAck(ex.StreamID, link.CancelFinished)
	s.report = true
	s.Schedule(s.streams.Len() == 0)
	s.finishDrain()
}

// Drain tells the peer to send no more, and closes once all is answered.
func (s *session) Drain() {
	if s.State() == linkconn.Open {
		s.StartDraining()
		s.Writer.GoAway(s.newest, link.Draining)
		s.Flush()
	}
	s.finishDrain()
}

// finishDrain closes when the last answer has left and nothing is in reassembly:
// the dialler goes on sending what the GOAWAY covers, and has to be told that it
// was not processed. The dialler usually closes first, once it has all that it
// asked for.
func (s *session) finishDrain() {
	if s.State() == linkconn.Draining && s.streams.Len() == 0 && s.Writer.Queued() == 0 && s.Reader.Buffered() == 0 {
		s.Transport.Drain()
		s.close()
	}
}

// close withdraws what the peer asked for and can't be told any more.
func (s *session) close() {
	if s.State() == linkconn.Closed {
		return
	}
	if s.State() != linkconn.Opening {
		s.host.Process.Links.Add(-1)
		s.listener.Links.Add(-1)
	}
	s.Release()
	if s.cur != nil {
		s.host.Pool.Recycle(s.cur)
		s.cur = nil
	}
	for _, carried := range s.streams.InOrder() {
		if ex := carried.Value; ex.Open() {
			ex.Cancel()
		}
	}
	s.streams.Clear()
}

func linkLoad(l lb.Load) link.Load {
	return link.Load{
		Pending: uint32(l.Pending), Queued: uint32(l.Queued),
		Latency: l.Latency, SinceAnswer: l.SinceAnswer,
	}
}

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
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

var _ loop.Verified = (*session)(nil)

// session is the accepting end of one link. Its listener has a service of its own.
type session struct {
	linkconn.Conn
	host     *downstream.Host
	listener *exchange.Listener           // its Direct route leads to the service
	streams  mux.Table[exchange.Exchange] // requests that began and have not ended
	cur      *exchange.Exchange           // receives the next request that the Reader decodes
	newest   uint64                       // highest id of a request that was complete or rejected
	report   bool                         // responses wait to be sent: a LOAD goes with them
	fetches  bool                         // the peer fetches response bodies that are streams
	cancels  uint64                       // CANCELs of requests that were not in the table, or were cancelled before

	counted   int // bytes of requests and long responses, since the turn of the loop at countedAt
	unread    int // of these, bytes of responses
	countedAt time.Duration

	downstream.SessionNode
}

// A dialler cancels a request at most twice: when it needs no response any more, and when it
// stops waiting for the outcome. More CANCELs would only keep the loop busy, so the link of
// such a peer closes. It may send spareCancels ahead of its requests.
const (
	cancelsPerRequest = 2
	spareCancels      = 256
)

// NewAcceptor returns the Acceptor of links on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	return func(l *exchange.Listener) loop.Stream { return newSession(h, l) }
}

func newSession(h *downstream.Host, l *exchange.Listener) *session {
	s := &session{host: h, listener: l, streams: mux.NewTable[exchange.Exchange]()}
	s.Init(h.Shard, link.Acceptor, s, s.overBudget)
	return s
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.Transport.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.Transport) }

// Retire drains the link: the peer sends elsewhere what a GOAWAY excludes.
func (s *session) Retire() { s.Drain() }

func (s *session) serviceName() string { return s.listener.Fixed.Service.Config.Name }

// opaque reports whether the service takes streams of bytes, and no requests.
func (s *session) opaque() bool { return s.listener.Fixed.Service.Opaque }

// takesOpaque reports whether the peer may open streams of bytes, which no limit or rule of
// requests can see into.
func (s *session) takesOpaque() bool { return s.opaque() || s.listener.Fixed.Service.Config.Opaque }

func (s *session) InFlight() int { return s.streams.Len() }

// Concurrency implements exchange.Caller. A link carries the requests of many connections. The other sidecar
// says which of them is alone on its connection.
func (s *session) Concurrency(ex *exchange.Exchange, _ int) int {
	if ex.Request.Alone {
		return 1
	}
	return s.streams.Len()
}

// BeforeFlush sends the service's load along with responses.
func (s *session) BeforeFlush() {
	if s.report {
		s.report = false
		s.Writer.Load(linkLoad(s.listener.Fixed.Service.Load()))
	}
}

func (s *session) OnLost() {
	s.close()
	s.Transport.Close()
}

// OnIdle sends a GOAWAY first: the peer then knows that a request on its way was not processed.
func (s *session) OnIdle() {
	if s.State() == linkconn.Open {
		s.Drain()
		return
	}
	s.OnLost()
}

func (s *session) OnOpen(c loop.Conn) {
	s.Attach(c)
	s.host.Add(s)
}

func (s *session) OnData(b []byte) {
	if s.State() == linkconn.Closed {
		return
	}
	if !s.Receive(b) {
		if s.InputError == link.ErrVersion {
			s.Transport.Write(link.AppendRefusal(nil))
			s.Transport.Drain()
		} else {
			s.Transport.Close()
		}
		s.close()
		return
	}
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.finishDrain()
}

func (s *session) OnClose(error) {
	s.close()
	s.host.OnClosed(s)
}

func (s *session) OnPreface(version uint8, peer link.Settings) {
	s.Writer.Preface(link.Acceptor, linkconn.Settings(s.host.Process))
	s.fetches = peer.Features&link.FeatureStreams != 0
	s.Establish(version, peer)
	s.host.Process.Links.Add(1) // before Draining is read: the count of Links relies on it
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
	s.newest = max(s.newest, id) // a long request ends after shorter ones that began later
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
	if req.Codec == protocol.CodecHTTP {
		var login protocol.Login
		req.Headers, login = protocol.FromLink(req.Headers)
		req.Trailers = protocol.WithoutOwn(req.Trailers)
		ex.NoteLogin(login)
	}
	ex.Charge()
	s.counted += ex.Held
	ex.Begin(s.listener.Fixed, s.listener)
}

// refuse refuses a request whose exchange has not begun.
func (s *session) refuse(id uint64, ex *exchange.Exchange, why link.Reason) {
	f := fault.OfReason(why)
	exchange.Refuse(s.host.Shard, s, ex, f)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", ex.Example(), f)
	s.host.Pool.Recycle(ex)
	s.Writer.Refused(id, why)
}

// OnReject refuses a request that the Reader could not take.
func (s *session) OnReject(id uint64, why link.Reason) { s.reject(id, why, fault.OfReason(why)) }

// reject refuses a request that has not arrived completely. It counts as f.
func (s *session) reject(id uint64, why link.Reason, f *fault.Failure) {
	exchange.Refuse(s.host.Shard, s, nil, f)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", shard.Example{}, f)
	s.newest = max(s.newest, id)
	s.Writer.Refused(id, why)
}

// OnCancel cancels a request, which stays in the table while the application works on it.
func (s *session) OnCancel(id uint64) {
	ex := s.streams.Get(id)
	switch {
	case ex == nil: // it has not arrived, or it has its response
		if !s.countCancel() {
			return
		}
		s.Reader.Forget(id)
		s.Writer.Drop(id)
		s.Writer.CancelAck(id, link.CancelDropped)
	case !ex.Open(): // cancelled before: CANCEL_ACK follows when the application is done
		s.countCancel()
	case ex.Cancel():
		s.Writer.CancelAck(id, link.CancelAtApp)
	default:
		s.streams.Remove(id)
		s.Writer.CancelAck(id, link.CancelDropped)
	}
}

// countCancel counts a CANCEL, and closes the link after too many.
func (s *session) countCancel() (open bool) {
	s.cancels++
	if s.cancels <= spareCancels+cancelsPerRequest*s.Reader.Requests() {
		return true
	}
	s.host.Log.Warn("link closed: the peer cancels more requests than it sends", "peer", s.Transport.RemoteAddr())
	s.OnLost()
	return false
}

// OnGoAway does nothing: a dialler that sends no more requests closes the link itself.
func (s *session) OnGoAway(uint64, link.Reason) {}

// These are for the dialling end.
func (s *session) NewResponse(uint64) *protocol.Response { return nil }
func (s *session) OnResponse(uint64, *protocol.Response, protocol.Codec, *bytebufferpool.ByteBuffer) {
}
func (s *session) OnInterim(uint64, *protocol.Response) {}
func (s *session) OnCancelAck(uint64, link.Dropped)     {}
func (s *session) OnRefused(uint64, link.Reason)        {}
func (s *session) OnLoad(link.Load)                     {}

// Encode implements exchange.Caller. Frames carry any response, but only a peer with streams
// can fetch a body that is one.
func (s *session) Encode(_ *exchange.Exchange, res *race.Response) *fault.Failure {
	if res.Source != nil && !s.fetches {
		return fault.ResponseTooLarge
	}
	res.Own()
	return nil
}

func (s *session) Respond(ex *exchange.Exchange, res *race.Response) {
	s.streams.Remove(ex.StreamID)
	if res.Source != nil {
		s.respondStream(ex, res)
	} else {
		res.Batch = ex.Request.Batch
		s.Writer.Response(ex.StreamID, &res.Response, res.Codec, res)
	}
	s.report = true
	s.Schedule(s.streams.Len() == 0)
}

var _ exchange.InterimCaller = (*session)(nil)

// Interim implements exchange.InterimCaller.
func (s *session) Interim(ex *exchange.Exchange, res *protocol.Response) {
	if s.Writer.Encoded() <= mux.MaxOutbound {
		s.Writer.Interim(ex.StreamID, res)
		s.Schedule(s.streams.Len() == 1)
	}
}

func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	s.streams.Remove(ex.StreamID)
	s.Writer.Refused(ex.StreamID, f.Refusal(ex.MaybeProcessed()))
	s.report = true
	s.Schedule(s.streams.Len() == 0)
}

// Finished implements exchange.Caller: the application is done with a cancelled request.
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

// Drain tells the peer to send no more requests, and closes the link after the last response.
func (s *session) Drain() {
	if s.State() == linkconn.Open {
		s.StartDraining()
		s.Writer.GoAway(s.newest, link.Draining)
		s.Flush()
	}
	s.finishDrain()
}

// OnUntrusted implements loop.Verified. Requests in flight get their responses.
func (s *session) OnUntrusted() {
	if s.State() == linkconn.Opening {
		s.OnLost()
		return
	}
	s.Drain()
	s.LimitDrain()
}

// finishDrain closes the link when the last response was written and nothing is in
// reassembly: the dialler completes requests that it began before the GOAWAY, and must learn
// that they were not processed. Usually the dialler closes first, once it has all responses.
func (s *session) finishDrain() {
	if s.State() == linkconn.Draining && s.streams.Len() == 0 && s.Writer.Queued() == 0 && s.Reader.Buffered() == 0 {
		s.Transport.Drain()
		s.close()
	}
}

// close cancels the requests of the peer, which can't get their responses any more.
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

package link

import (
	"errors"
	"fmt"
	"io"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/race"
)

var (
	_ loop.Destined = (*client)(nil)
	_ loop.Verified = (*client)(nil)
)

// client is the dialling end of one link: it sends attempts to the endpoint, and ends each with what the peer says of it.
type client struct {
	linkconn.Conn
	up       *upstream
	streams  mux.Table[race.Attempt] // in flight, lingering ones included
	next     uint64                  // id of the next request
	limit    int                     // requests in flight that the peer allows
	starts   bool                    // the peer has link.FeatureStarts
	response *race.Response          // receives the next response that the Reader decodes

	goAwayHeard bool     // a GOAWAY was received
	acceptedIDs []uint64 // ids that the GOAWAYs leave on this link, rising; some may have ended

	handshake loop.Timer // armed until the peer's preface arrives
	probes    probes
}

// These are the reasons for which a connection did not become a link.
var (
	errLinkSilent = errors.New("proxy: the peer did not begin to speak the link protocol within connect_timeout")
	errUntrusted  = errors.New("proxy: the peer is no longer accepted")
	errLinkClosed = errors.New("proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol")
)

func (c *client) ServiceKey() string { return c.up.service.Shared.Key }

func dialLink(u *upstream) *client {
	c := &client{up: u, streams: mux.NewTable[race.Attempt](), next: 1, limit: mux.MaxStreams}
	settings := linkconn.Settings(u.service.Shard.Process)
	limits := linkconn.Limits(u.service.Shard, c.unasked) // other responses are no new work
	c.Init(u.service.Shard, link.NewDialer(settings, limits, c), c)
	c.handshake.Fire = func() { c.onDialFailed(errLinkSilent) }
	c.Writer.Preface(link.Dialer, settings)
	c.Shard.Loop.Dial(u.endpoint.LB.Addr, u.service.Config.ConnectTimeout, c)
	return c
}

// unasked reports whether nobody waits for the response to id.
func (c *client) unasked(id uint64) bool { return c.streams.Get(id) == nil }

func (c *client) InFlight() int { return c.streams.Len() }
func (c *client) BeforeFlush()  {}
func (c *client) OnLost()       { c.close(fault.Reset) }
func (c *client) OnIdle()       { c.close(nil) }

func (c *client) OnOpen(conn loop.Conn) {
	if c.State() == linkconn.Closed {
		conn.Close()
		return
	}
	c.Attach(conn)
	c.Shard.Loop.After(c.up.service.Config.ConnectTimeout, &c.handshake)
	c.Flush()
}

func (c *client) OnData(b []byte) {
	if c.State() != linkconn.Closed && !c.Receive(b) {
		c.close(fault.Reset)
		return
	}
	c.finishDrain()
}

func (c *client) OnClose(err error) {
	switch {
	case c.State() == linkconn.Closed:
	case c.State() != linkconn.Opening:
		c.close(fault.Reset)
	case c.Transport == nil || err == nil:
		c.onDialFailed(err)
	case err == io.EOF:
		c.onDialFailed(errLinkClosed)
	default:
		c.onDialFailed(fmt.Errorf("%w: %w", errLinkClosed, err))
	}
}

// onDialFailed ends a link that did not open, because of err. It is nil when the process ends.
func (c *client) onDialFailed(err error) {
	c.close(c.up.service.DialFailed(c.up.endpoint.LB.Addr, err))
}

// send sends a's request, or fails a when the peer allows no more in flight.
func (c *client) send(a *race.Attempt) {
	if c.streams.Len() >= c.limit {
		a.Fail(fault.StreamLimit)
		return
	}
	req := a.Outgoing().Request()
	req.Hold = a.HoldsHead()
	id := c.next
	c.next++
	a.Carry(c, id)
	c.streams.Put(id, a)
	c.Writer.Request(id, req, req.Deadline-c.Shard.Loop.Now(), nil)
	c.Schedule(c.streams.Len() == 1)
}

// Cancel implements race.Carrier. The other sidecar reports the outcome of a.
func (c *client) Cancel(a *race.Attempt) (lingers bool) {
	lingers = c.sendCancel(a)
	c.finishDrain()
	return lingers
}

func (c *client) Abort(a *race.Attempt) {
	c.abandon(a)
	c.finishDrain()
}

func (c *client) Buffered(a *race.Attempt) int { return c.Reader.Assembled(a.ID()) }

// sendCancel sends a CANCEL for a. It reports whether an outcome follows.
func (c *client) sendCancel(a *race.Attempt) (lingers bool) {
	if !c.Writer.Cancel(a.ID()) {
		c.forget(a)
		return false
	}
	c.Shard.Stats.Cancels++
	c.Schedule(c.streams.Len() == 1)
	return true
}

// abandon cancels a without waiting for an outcome, and drops what has arrived for it.
func (c *client) abandon(a *race.Attempt) {
	c.sendCancel(a)
	c.forget(a)
	c.Reader.Forget(a.ID())
	c.Recount()
}

// forget removes a from the table. Frames that still arrive for it are ignored.
func (c *client) forget(a *race.Attempt) {
	c.streams.Remove(a.ID())
	a.Detach()
}

// remove removes and returns the attempt with this id, whose outcome has arrived, or nil.
func (c *client) remove(id uint64) *race.Attempt {
	a := c.streams.Get(id)
	if a != nil {
		c.Writer.Drop(id)
		c.forget(a)
	}
	return a
}

// OnPreface opens the link: requests that were queued may be sent.
func (c *client) OnPreface(version uint8, peer link.Settings) {
	c.Shard.Loop.Stop(&c.handshake)
	c.limit, c.starts = int(peer.MaxStreams), peer.Features&link.FeatureStarts != 0
	c.probes.taken = peer.Features&link.FeatureProbes != 0
	c.Establish(version, peer)
	if c.up.gone {
		c.StartDraining()
	}
}

// NewResponse returns the memory for a response, or nil for one that no attempt waits for.
func (c *client) NewResponse(id uint64) *protocol.Response {
	a := c.streams.Get(id)
	if a == nil {
		return nil
	}
	if a.Lingering() { // the CANCEL crossed the response
		c.remove(id)
		a.Finish(true)
		return nil
	}
	if c.response == nil {
		c.response = a.NewResponse()
	}
	return &c.response.Response
}

func (c *client) OnResponse(id uint64, _ *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	res := c.response
	c.response = nil
	res.HeadBuffer, res.Codec = buf, codec
	res.Charge()
	a := c.remove(id)
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
		c.fetch(a, res)
	}
	a.Respond(res)
}

func (c *client) OnInterim(id uint64, res *protocol.Response) {
	if a := c.streams.Get(id); a != nil {
		a.Interim(res)
	}
}

// OnReject fails an attempt whose response the Reader could not take.
func (c *client) OnReject(id uint64, why link.Reason) {
	a := c.streams.Get(id)
	if a == nil {
		return
	}
	c.abandon(a)
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
// done. One that is still at the application goes on lingering.
func (c *client) OnCancelAck(id uint64, d link.Dropped) {
	if d != link.CancelDropped && d != link.CancelFinished && d != link.CancelClosed {
		return
	}
	a := c.remove(id)
	switch {
	case a == nil:
	case !a.Lingering(): // it was not cancelled
		a.Fail(fault.Malformed)
	case d == link.CancelClosed:
		a.Presume()
	case d == link.CancelFinished:
		a.Finish(true)
	default:
		c.Shard.Stats.CancelsSaved++
		a.Finish(false)
	}
}

// OnStart tells a, whose start was asked for, that it has started.
func (c *client) OnStart(id uint64) {
	if a := c.streams.Get(id); a != nil {
		a.Started()
	}
}

func (c *client) OnRefused(id uint64, why link.Reason) {
	if a := c.remove(id); a != nil {
		a.Fail(fault.OfReason(why))
	}
}

// OnGoAway fails the attempts that the peer did not accept, those with an id above last. They
// and all later ones may go elsewhere. A GOAWAY before the first request counts as a refused
// connection, lest the endpoint be picked because it has nothing in flight. No request is put
// on the link from then on: the first GOAWAY lists the ids in flight, and further ones only
// shorten that list, so that each id is visited once, however many GOAWAYs arrive.
func (c *client) OnGoAway(last uint64, _ link.Reason) {
	c.detach()
	c.StartDraining()
	if !c.goAwayHeard {
		c.goAwayHeard = true
		for _, s := range c.streams.InOrder() {
			c.acceptedIDs = append(c.acceptedIDs, s.ID)
		}
	}
	f := fault.GoAway
	if last == 0 {
		f = fault.Connect
	}
	n := len(c.acceptedIDs)
	for n > 0 && c.acceptedIDs[n-1] > last {
		n--
	}
	rejected := c.acceptedIDs[n:]
	c.acceptedIDs = c.acceptedIDs[:n]
	for _, id := range rejected {
		if a := c.remove(id); a != nil {
			a.Fail(f)
		}
	}
}

// OnLoad passes the load of the peer's service to the load balancer.
func (c *client) OnLoad(l link.Load) {
	ep := c.up.endpoint.LB
	ep.Report(c.Shard.Loop.Now(), loadOf(l), ep.OfProcess())
}

func loadOf(l link.Load) lb.Load {
	return lb.Load{Pending: int(l.Pending), Queued: int(l.Queued), Latency: l.Latency, SinceResponse: l.SinceResponse}
}

// detach makes the next attempt dial a new link.
func (c *client) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// drain closes the link once nothing is in flight on it.
func (c *client) drain() {
	if c.State() == linkconn.Open {
		c.StartDraining()
	}
	c.finishDrain()
}

// OnUntrusted implements loop.Verified. The next attempt dials a new link, and so verifies the
// endpoint again.
func (c *client) OnUntrusted() {
	if c.State() == linkconn.Opening {
		c.onDialFailed(errUntrusted)
		return
	}
	c.detach()
	c.drain()
	c.LimitDrain()
}

func (c *client) finishDrain() {
	if c.State() == linkconn.Draining && c.streams.Len() == 0 {
		c.close(nil)
	}
}

// close closes the link, and fails with f the attempts in flight on it. A request of which no
// byte was sent counts as unsent, whatever f says.
func (c *client) close(f *fault.Failure) {
	if c.State() == linkconn.Closed {
		return
	}
	opening := c.State() == linkconn.Opening
	c.detach()
	c.Shard.Loop.Stop(&c.handshake)
	streams := c.streams.InOrder()
	sent := make([]bool, len(streams))
	for i, s := range streams {
		sent[i] = !opening && c.Writer.Drop(s.ID)
	}
	c.Stop()
	if c.response != nil {
		c.response.Release()
		c.response = nil
	}
	if c.Transport != nil {
		c.Transport.Close()
	}
	for i, s := range streams {
		a := c.streams.Get(s.ID)
		if a == nil {
			continue // cancelled when an earlier attempt failed
		}
		c.forget(a)
		if sent[i] {
			a.Fail(f)
		} else {
			a.Fail(f.AsUnsent())
		}
	}
}

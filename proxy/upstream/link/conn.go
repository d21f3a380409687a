package link

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

var _ loop.Destined = (*client)(nil)

// client is the dialling end of one link.
type client struct {
	linkconn.Conn
	up       *upstream
	streams  mux.Table[exchange.Attempt] // out, lingering ones included
	next     uint64                      // id of the next request
	max      int                         // streams that the peer allows
	response *exchange.Response          // what the Reader decodes into

	goAwayHeard bool     // a GOAWAY was heard
	acceptedIDs []uint64 // the ids that it left here, rising, those that are over included

	handshake loop.Timer
}

// Why a connection is no link.
var (
	errLinkSilent = errors.New("proxy: the peer did not begin to speak the link protocol within connect_timeout")
	errLinkClosed = errors.New("proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol")
)

// Service implements Destined.
func (c *client) Service() string { return c.up.service.Config.Name }

func dialLink(u *upstream) *client {
	c := &client{up: u, streams: mux.NewTable[exchange.Attempt](), next: 1, max: mux.MaxStreams}
	c.Init(u.shard, link.Dialer, c, nil) // answers are no new work
	c.handshake.Fire = func() { c.unopened(errLinkSilent) }
	c.Writer.Preface(link.Dialer, linkconn.Settings(u.shard.Process))
	u.shard.Loop.Dial(u.endpoint.LB.Addr, u.service.Config.ConnectTimeout, c)
	return c
}

func (c *client) InFlight() int { return c.streams.Len() }
func (c *client) BeforeFlush()  {}
func (c *client) OnLost()       { c.close(fault.Reset) }
func (c *client) OnIdle()       { c.close(nil) }

func (c *client) OnOpen(conn loop.Conn) {
	if c.State() == linkconn.Closed {
		conn.Close()
		return
	}
	c.Opened(conn)
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
		c.unopened(err)
	case err == io.EOF:
		c.unopened(errLinkClosed)
	default:
		c.unopened(fmt.Errorf("%w: %w", errLinkClosed, err))
	}
}

// unopened: the endpoint is no link, for err; nil: the process ends.
func (c *client) unopened(err error) {
	c.close(c.up.service.DialFailed(c.up.endpoint.LB.Addr, err))
}

func (c *client) send(a *exchange.Attempt) {
	if c.streams.Len() >= c.max {
		a.Failed(fault.StreamLimit)
		return
	}
	req := a.Request()
	id := c.next
	c.next++
	a.Carry(c, id)
	c.streams.Put(id, a)
	c.Writer.Request(id, req, req.Deadline-c.Shard.Loop.Now(), nil)
	c.Schedule(c.streams.Len() == 1)
}

// Cancel implements carrier: the other sidecar tells what became of a.
func (c *client) Cancel(a *exchange.Attempt) (lingers bool) {
	lingers = c.withdraw(a)
	c.finishDrain()
	return lingers
}

// Abort implements carrier.
func (c *client) Abort(a *exchange.Attempt) {
	c.giveUp(a)
	c.finishDrain()
}

// Buffered implements carrier.
func (c *client) Buffered(a *exchange.Attempt) int { return c.Reader.Assembled(a.ID()) }

// withdraw tells the other sidecar that nobody waits for a. It reports whether an
// outcome follows.
func (c *client) withdraw(a *exchange.Attempt) (lingers bool) {
	if !c.Writer.Cancel(a.ID()) {
		c.forget(a)
		return false
	}
	c.Shard.Stats.Cancels++
	c.Schedule(c.streams.Len() == 1)
	return true
}

// giveUp is withdraw for what nobody waits for: a is over, and what is here of its
// answer is free.
func (c *client) giveUp(a *exchange.Attempt) {
	c.withdraw(a)
	c.forget(a)
	c.Reader.Forget(a.ID())
	c.Account()
}

// forget takes a out of the table; what still comes for it is ignored.
func (c *client) forget(a *exchange.Attempt) {
	c.streams.Remove(a.ID())
	a.Release()
}

// remove ends a's part on this link, for its outcome is here.
func (c *client) remove(id uint64) *exchange.Attempt {
	a := c.streams.Get(id)
	if a != nil {
		c.Writer.Drop(id)
		c.forget(a)
	}
	return a
}

// OnPreface: the peer speaks our language; what was queued may leave.
func (c *client) OnPreface(version uint8, peer link.Settings) {
	c.Shard.Loop.Stop(&c.handshake)
	c.max = int(peer.MaxStreams)
	c.Establish(version, peer)
	if c.up.gone {
		c.StartDraining()
	}
}

// OnStream is for the other end.
func (c *client) OnStream(link.Stream, []byte) {}

// NewRequest is for the other end.
func (c *client) NewRequest(uint64) *protocol.Request { return nil }

// OnRequest is for the other end.
func (c *client) OnRequest(uint64, *protocol.Request, time.Duration, *bytebufferpool.ByteBuffer) {
}

// NewResponse supplies the memory of an answer that someone waits for.
func (c *client) NewResponse(id uint64) *protocol.Response {
	a := c.streams.Get(id)
	if a == nil {
		return nil
	}
	if a.Lingering() { // the CANCEL crossed the answer
		c.remove(id)
		a.Ended(true)
		return nil
	}
	if c.response == nil {
		c.response = c.up.pool.Response()
	}
	return &c.response.Response
}

func (c *client) OnResponse(id uint64, _ *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	ans := c.response
	c.response = nil
	ans.HeadBuffer, ans.Codec = buf, codec
	ans.Hold()
	a := c.remove(id)
	if a == nil {
		ans.Release()
		return
	}
	if ans.StreamToken != nil {
		if a.ToHead() { // there can't be a body
			ans.Release()
			a.Failed(fault.Malformed)
			return
		}
		c.fetch(a, ans)
	}
	a.Answered(ans)
}

// OnReject: the answer can't be taken.
func (c *client) OnReject(id uint64, why link.Reason) {
	a := c.streams.Get(id)
	if a == nil {
		return
	}
	c.giveUp(a)
	switch why {
	case link.TooLarge:
		a.Failed(fault.ResponseTooLarge)
	case link.DeadlinePassed:
		a.Failed(fault.Deadline)
	default:
		a.Failed(fault.Malformed)
	}
}

// OnCancel is for the other end.
func (c *client) OnCancel(uint64) {}

// OnCancelAck: a withdrawn attempt was dropped, is at the application, or is
// finished there.
func (c *client) OnCancelAck(id uint64, d link.Dropped) {
	if d != link.CancelDropped && d != link.CancelFinished {
		return
	}
	a := c.remove(id)
	switch {
	case a == nil:
	case !a.Lingering(): // nobody withdrew it
		a.Failed(fault.Malformed)
	default:
		if d == link.CancelDropped {
			c.Shard.Stats.CancelsSaved++
		}
		a.Ended(d == link.CancelFinished)
	}
}

func (c *client) OnRefused(id uint64, why link.Reason) {
	if a := c.remove(id); a != nil {
		a.Failed(fault.OfReason(why))
	}
}

// OnGoAway: what the peer did not take is free to go elsewhere, and so is all
// that comes after. A link that is turned away at its start is a connection that
// is refused: the endpoint is not to be picked for having nothing to do. Nothing is
// put on the link from then on, so that further GOAWAYs take from what the first one
// has listed, each id once, however many there are.
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
	gone := c.acceptedIDs[n:]
	c.acceptedIDs = c.acceptedIDs[:n]
	for _, id := range gone {
		if a := c.remove(id); a != nil {
			a.Failed(f)
		}
	}
}

func (c *client) OnLoad(l link.Load) {
	ep := c.up.endpoint.LB
	ep.Report(c.Shard.Loop.Now(), lb.Load{
		Pending: int(l.Pending), Queued: int(l.Queued), Latency: l.Latency, SinceAnswer: l.SinceAnswer,
	}, ep.Own())
}

// detach makes the next attempt dial anew.
func (c *client) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// drain closes the link once nothing is out on it.
func (c *client) drain() {
	if c.State() == linkconn.Open {
		c.StartDraining()
	}
	c.finishDrain()
}

func (c *client) finishDrain() {
	if c.State() == linkconn.Draining && c.streams.Len() == 0 {
		c.close(nil)
	}
}

// close ends the link and with f all that is out on it. A request of which
// nothing has left counts as not sent, whatever f.
func (c *client) close(f *fault.Failure) {
	if c.State() == linkconn.Closed {
		return
	}
	unopened := c.State() == linkconn.Opening
	c.detach()
	c.Shard.Loop.Stop(&c.handshake)
	var unsent []uint64
	for _, s := range c.streams.InOrder() {
		if unopened || !c.Writer.Drop(s.ID) {
			unsent = append(unsent, s.ID)
		}
	}
	c.Release()
	if c.response != nil {
		c.response.Release()
		c.response = nil
	}
	if c.Transport != nil {
		c.Transport.Close()
	}
	for _, s := range c.streams.InOrder() {
		a := c.streams.Get(s.ID)
		if a == nil {
			continue // withdrawn by an earlier one's failure
		}
		c.forget(a)
		if _, whole := slices.BinarySearch(unsent, s.ID); whole {
			a.Failed(f.AsUnsent())
			continue
		}
		a.Failed(f)
	}
}

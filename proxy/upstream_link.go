package proxy

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
)

// linkUpstream is the link upstream of one endpoint on one loop: one multiplexed
// link, dialled on first use and again when it is lost.
type linkUpstream struct {
	svc    *service
	target *endpoint
	cur    *linkClient // takes new attempts; nil before the first, and after a loss
	gone   bool        // the endpoint left the service
}

var _, _ Destined = (*linkClient)(nil), (*httpUpstream)(nil)

func newLinkUpstream(s *service, target *endpoint) *linkUpstream {
	return &linkUpstream{svc: s, target: target}
}

func (u *linkUpstream) send(a *attempt) {
	if u.cur == nil {
		u.cur = dialLink(u)
	}
	u.cur.send(a)
}

func (u *linkUpstream) cancel(a *attempt) (lingering bool) {
	c := a.link
	lingering = c.cancel(a)
	c.finishDrain()
	return lingering
}

func (u *linkUpstream) abort(a *attempt) {
	c := a.link
	c.giveUp(a)
	c.finishDrain()
}

func (u *linkUpstream) retire() {
	u.gone = true
	if c := u.cur; c != nil {
		u.cur = nil
		c.drain()
	}
}

// linkClient is the dialling end of one link.
type linkClient struct {
	linkConn
	up      *linkUpstream
	streams linkStreamTable[attempt] // out, lingering ones included
	next    uint64                   // id of the next request
	max     int                      // streams that the peer allows
	ans     *answer                  // what the Reader decodes into

	told    bool     // a GOAWAY was heard
	covered []uint64 // the ids that it left here, rising, those that are over included

	handshake Timer
}

// Why a connection is no link.
var (
	errLinkSilent = errors.New("proxy: the peer did not begin to speak the link protocol within connect_timeout")
	errLinkClosed = errors.New("proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol")
)

// Service implements Destined.
func (c *linkClient) Service() string { return c.up.svc.cfg.Name }

func dialLink(u *linkUpstream) *linkClient {
	c := &linkClient{up: u, streams: newLinkStreamTable[attempt](), next: 1, max: linkStreams}
	c.init(u.svc.w, link.Dialer, c, nil) // answers are no new work
	c.handshake.Fire = func() { c.unopened(errLinkSilent) }
	c.w.Preface(link.Dialer, u.svc.w.proc.linkSettings())
	u.svc.w.loop.Dial(u.target.lb.Addr, u.svc.cfg.ConnectTimeout, c)
	return c
}

func (c *linkClient) carried() int { return c.streams.len() }
func (c *linkClient) prepare()     {}
func (c *linkClient) lost()        { c.close(FailReset) }
func (c *linkClient) idled()       { c.close(nil) }

func (c *linkClient) OnOpen(conn Conn) {
	if c.state == linkClosed {
		conn.Close()
		return
	}
	c.opened(conn)
	c.worker.loop.After(c.up.svc.cfg.ConnectTimeout, &c.handshake)
	c.flush()
}

func (c *linkClient) OnData(b []byte) {
	if c.state != linkClosed && !c.feed(b) {
		c.close(FailReset)
		return
	}
	c.finishDrain()
}

func (c *linkClient) OnClose(err error) {
	switch {
	case c.state == linkClosed:
	case c.state != linkOpening:
		c.close(FailReset)
	case c.conn == nil || err == nil:
		c.unopened(err)
	case err == io.EOF:
		c.unopened(errLinkClosed)
	default:
		c.unopened(fmt.Errorf("%w: %w", errLinkClosed, err))
	}
}

// unopened: the endpoint is no link, for err; nil: the process ends.
func (c *linkClient) unopened(err error) {
	c.close(c.up.svc.dialFailed(c.up.target.lb.Addr, err))
}

func (c *linkClient) send(a *attempt) {
	if c.streams.len() >= c.max {
		a.failed(FailFull)
		return
	}
	req := a.request()
	a.stream, a.link = c.next, c
	c.streams.put(c.next, a)
	c.next++
	c.w.Request(a.stream, req, req.Deadline-c.worker.loop.Now(), nil)
	c.schedule(c.streams.len() == 1)
}

// cancel withdraws a; the other sidecar tells what became of it.
func (c *linkClient) cancel(a *attempt) (lingering bool) {
	if !c.w.Cancel(a.stream) {
		c.forget(a)
		return false
	}
	c.worker.stats.Cancels++
	c.schedule(c.streams.len() == 1)
	return true
}

// giveUp is cancel for what nobody waits for: a is over, and what is here of its
// answer is free.
func (c *linkClient) giveUp(a *attempt) {
	c.cancel(a)
	c.forget(a)
	c.r.Forget(a.stream)
	c.account()
}

// forget takes a out of the table; what still comes for it is ignored.
func (c *linkClient) forget(a *attempt) {
	c.streams.remove(a.stream)
	a.link = nil
}

// take ends a's part on this link, for its outcome is here.
func (c *linkClient) take(id uint64) *attempt {
	a := c.streams.get(id)
	if a != nil {
		c.w.Drop(id)
		c.forget(a)
	}
	return a
}

// OnPreface: the peer speaks our language; what was queued may leave.
func (c *linkClient) OnPreface(version uint8, peer link.Settings) {
	c.worker.loop.Stop(&c.handshake)
	c.state = linkOpen
	c.max = int(peer.MaxStreams)
	c.w.Open(version, peer)
	if c.up.gone {
		c.state = linkDraining
	}
}

// OnStream is for the other end.
func (c *linkClient) OnStream(link.Stream, []byte) {}

// NewRequest is for the other end.
func (c *linkClient) NewRequest(uint64) *protocol.Request { return nil }

// OnRequest is for the other end.
func (c *linkClient) OnRequest(uint64, *protocol.Request, time.Duration, *bytebufferpool.ByteBuffer) {
}

// NewResponse supplies the memory of an answer that someone waits for.
func (c *linkClient) NewResponse(id uint64) *protocol.Response {
	a := c.streams.get(id)
	if a == nil {
		return nil
	}
	if a.state == attemptLingering { // the CANCEL crossed the answer
		c.take(id)
		a.dropped(true)
		return nil
	}
	if c.ans == nil {
		c.ans = c.worker.answer()
	}
	return &c.ans.Response
}

func (c *linkClient) OnResponse(id uint64, _ *protocol.Response, codec protocol.Codec, buf *bytebufferpool.ByteBuffer) {
	ans := c.ans
	c.ans = nil
	ans.head, ans.codec = buf, codec
	ans.hold()
	a := c.take(id)
	if a == nil {
		ans.Release()
		return
	}
	if ans.StreamToken != nil {
		if string(a.ex.req.Method) == "HEAD" { // there can't be a body
			ans.Release()
			a.failed(FailMalformed)
			return
		}
		c.fetch(a, ans)
	}
	a.answered(ans)
}

// OnReject: the answer can't be taken.
func (c *linkClient) OnReject(id uint64, why link.Reason) {
	a := c.streams.get(id)
	if a == nil {
		return
	}
	c.giveUp(a)
	switch why {
	case link.TooLarge:
		a.failed(FailTooLarge)
	case link.DeadlinePassed:
		a.failed(FailDeadline)
	default:
		a.failed(FailMalformed)
	}
}

// OnCancel is for the other end.
func (c *linkClient) OnCancel(uint64) {}

// OnCancelAck: a withdrawn attempt was dropped, is at the application, or is
// finished there.
func (c *linkClient) OnCancelAck(id uint64, d link.Dropped) {
	if d != link.CancelDropped && d != link.CancelFinished {
		return
	}
	a := c.take(id)
	switch {
	case a == nil:
	case a.state != attemptLingering: // nobody withdrew it
		a.failed(FailMalformed)
	default:
		if d == link.CancelDropped {
			c.worker.stats.CancelsSaved++
		}
		a.dropped(d == link.CancelFinished)
	}
}

func (c *linkClient) OnRefused(id uint64, why link.Reason) {
	if a := c.take(id); a != nil {
		a.failed(FailureOf(why))
	}
}

// OnGoAway: what the peer did not take is free to go elsewhere, and so is all
// that comes after. A link that is turned away at its start is a connection that
// is refused: the endpoint is not to be picked for having nothing to do. Nothing is
// put on the link from then on, so that further GOAWAYs take from what the first one
// has listed, each id once, however many there are.
func (c *linkClient) OnGoAway(last uint64, _ link.Reason) {
	c.detach()
	c.state = linkDraining
	if !c.told {
		c.told = true
		for _, s := range c.streams.inOrder() {
			c.covered = append(c.covered, s.id)
		}
	}
	f := FailUnprocessed
	if last == 0 {
		f = FailConnect
	}
	n := len(c.covered)
	for n > 0 && c.covered[n-1] > last {
		n--
	}
	gone := c.covered[n:]
	c.covered = c.covered[:n]
	for _, id := range gone {
		if a := c.take(id); a != nil {
			a.failed(f)
		}
	}
}

func (c *linkClient) OnLoad(l link.Load) {
	ep := c.up.target.lb
	ep.Report(c.worker.loop.Now(), lb.Load{
		Pending: int(l.Pending), Queued: int(l.Queued), Latency: l.Latency, SinceAnswer: l.SinceAnswer,
	}, ep.Own())
}

// detach makes the next attempt dial anew.
func (c *linkClient) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// drain closes the link once nothing is out on it.
func (c *linkClient) drain() {
	if c.state == linkOpen {
		c.state = linkDraining
	}
	c.finishDrain()
}

func (c *linkClient) finishDrain() {
	if c.state == linkDraining && c.streams.len() == 0 {
		c.close(nil)
	}
}

// close ends the link and with f all that is out on it. A request of which
// nothing has left counts as not sent, whatever f.
func (c *linkClient) close(f *Failure) {
	if c.state == linkClosed {
		return
	}
	unopened := c.state == linkOpening
	c.detach()
	c.worker.loop.Stop(&c.handshake)
	var unsent []uint64
	for _, s := range c.streams.inOrder() {
		if unopened || !c.w.Drop(s.id) {
			unsent = append(unsent, s.id)
		}
	}
	c.shut()
	if c.ans != nil {
		c.ans.Release()
		c.ans = nil
	}
	if c.conn != nil {
		c.conn.Close()
	}
	for _, s := range c.streams.inOrder() {
		a := c.streams.get(s.id)
		if a == nil {
			continue // withdrawn by an earlier one's failure
		}
		c.forget(a)
		if _, whole := slices.BinarySearch(unsent, s.id); whole {
			a.failed(f.unsent())
			continue
		}
		a.failed(f)
	}
}

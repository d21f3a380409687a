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
	*linkConnector
	svc    *service
	target *endpoint
	cur    *linkClient // takes new attempts; nil before the first, and after a loss
	gone   bool        // the endpoint left the service
}

var _ Destined = (*linkClient)(nil)

// linkConnector makes the links of one loop.
type linkConnector struct {
	w    *shard
	pool *pool
}

func newLinkConnector(w *shard, p *pool) connector { return &linkConnector{w, p} }

func (l *linkConnector) upstream(s *service, target *endpoint) upstream {
	return &linkUpstream{linkConnector: l, svc: s, target: target}
}

func (u *linkUpstream) send(a *attempt) {
	if u.cur == nil {
		u.cur = dialLink(u)
	}
	u.cur.send(a)
}

func (u *linkUpstream) retire() {
	u.gone = true
	if c := u.cur; c != nil {
		u.cur = nil
		c.drain()
	}
}

func (u *linkUpstream) connections() int {
	if u.cur == nil {
		return 0
	}
	return 1
}

func (u *linkUpstream) largest() (held, each int, h holder) {
	c := u.cur
	if c == nil {
		return 0, 0, nil
	}
	held = c.held + c.outbound.counted
	return held, held / max(1, c.carried()), c
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
	c := &linkClient{up: u, streams: newLinkStreamTable[attempt](), next: 1, max: maxStreams}
	c.init(u.w, link.Dialer, c, nil) // answers are no new work
	c.handshake.Fire = func() { c.unopened(errLinkSilent) }
	c.w.Preface(link.Dialer, linkSettings(u.w.shared))
	u.w.loop.Dial(u.target.lb.Addr, u.svc.cfg.ConnectTimeout, c)
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
	c.shard.loop.After(c.up.svc.cfg.ConnectTimeout, &c.handshake)
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
	id := c.next
	c.next++
	a.carry(c, id)
	c.streams.put(id, a)
	c.w.Request(id, req, req.Deadline-c.shard.loop.Now(), nil)
	c.schedule(c.streams.len() == 1)
}

// cancel implements carrier: the other sidecar tells what became of a.
func (c *linkClient) cancel(a *attempt) (lingers bool) {
	lingers = c.withdraw(a)
	c.finishDrain()
	return lingers
}

// abort implements carrier.
func (c *linkClient) abort(a *attempt) {
	c.giveUp(a)
	c.finishDrain()
}

// buffered implements carrier.
func (c *linkClient) buffered(a *attempt) int { return c.r.Assembled(a.id()) }

// withdraw tells the other sidecar that nobody waits for a. It reports whether an
// outcome follows.
func (c *linkClient) withdraw(a *attempt) (lingers bool) {
	if !c.w.Cancel(a.id()) {
		c.forget(a)
		return false
	}
	c.shard.stats.Cancels++
	c.schedule(c.streams.len() == 1)
	return true
}

// giveUp is withdraw for what nobody waits for: a is over, and what is here of its
// answer is free.
func (c *linkClient) giveUp(a *attempt) {
	c.withdraw(a)
	c.forget(a)
	c.r.Forget(a.id())
	c.account()
}

// forget takes a out of the table; what still comes for it is ignored.
func (c *linkClient) forget(a *attempt) {
	c.streams.remove(a.id())
	a.drop()
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
	c.shard.loop.Stop(&c.handshake)
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
	if a.lingering() { // the CANCEL crossed the answer
		c.take(id)
		a.dropped(true)
		return nil
	}
	if c.ans == nil {
		c.ans = c.up.pool.answer()
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
		if a.toHead() { // there can't be a body
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
	case !a.lingering(): // nobody withdrew it
		a.failed(FailMalformed)
	default:
		if d == link.CancelDropped {
			c.shard.stats.CancelsSaved++
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
	ep.Report(c.shard.loop.Now(), lb.Load{
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
	c.shard.loop.Stop(&c.handshake)
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

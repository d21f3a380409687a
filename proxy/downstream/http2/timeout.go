package http2

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

const (
	// drainGrace is how long requests may be on their way to a draining session, if its client does
	// not say earlier that it knows.
	drainGrace = time.Second

	// watchSlack is how late the timer watch may be. If it is later, the loop was busy, and first
	// handles what came meanwhile: it may be the rest of the requests.
	watchSlack = time.Millisecond
)

// startTimeout starts the timeout for the rest of a head, or for the next request.
func (s *session) startTimeout() {
	t := &s.host.Config.Timeouts
	switch {
	case s.state == closed:
	case s.codec.InHead():
		if !s.timeout.Running(loop.TimeoutHead) {
			s.timeout.Start(loop.TimeoutHead, t.Header)
		}
	case len(s.calls) > 0:
		s.timeout.Stop()
	case !s.timeout.Running(loop.TimeoutIdle):
		s.timeout.StartIdle(t.Idle)
	}
}

// onTimeout closes a connection whose head is incomplete for too long, and drains an idle one.
func (s *session) onTimeout(k loop.TimeoutKind) {
	if k == loop.TimeoutIdle {
		s.Drain()
		return
	}
	exchange.Refuse(s.host.Shard, s, nil, fault.SlowHead)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", shard.Example{}, fault.SlowHead)
	s.codec.GoAway(http2.EnhanceYourCalm)
	s.writeLast()
	s.close()
	s.conn.Drain()
}

// onGrace ends the time for requests that were on their way, or for the session of a peer that is no
// longer accepted, or counts as gone.
func (s *session) onGrace() {
	switch {
	case s.ended && s.answered:
		s.answered = false
		s.host.Loop.After(s.host.Config.Timeouts.HalfClose, &s.grace)
	case s.ended:
		s.close()
		s.conn.Close()
	case s.untrusted:
		s.CloseNow()
	case !s.codec.Final():
		s.codec.GoAway(http2.NoError)
		s.write()
	}
}

// watchPending makes onWatch run soon if calls are pending.
func (s *session) watchPending() {
	if s.pending == 0 || s.state == closed {
		return
	}
	due := s.host.Loop.Now() + race.GRPCStreamAfter
	if s.watch.Armed() && s.watchDue <= due {
		return
	}
	s.watchDue = due
	s.host.Loop.After(race.GRPCStreamAfter, &s.watch)
}

// onWatch ends what has taken too long, and makes streams of incomplete requests.
func (s *session) onWatch() {
	now, next := s.host.Loop.Now(), time.Duration(math.MaxInt64)
	if s.late = now > s.watchDue+watchSlack && !s.late; s.late {
		s.host.Loop.After(0, &s.watch)
		return
	}
	for i := 0; i < len(s.calls); {
		c := s.calls[i]
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
		if s.state == closed {
			return
		}
	}
	if next < math.MaxInt64 {
		s.watchDue = next
		s.host.Loop.After(next-now, &s.watch)
	}
	s.recount()
	s.schedule(false)
}

// due returns when a pending call must be looked at.
func (c *call) due() time.Duration {
	s := c.session
	t := &s.host.Config.Timeouts
	if c.state == sending {
		return c.heard + t.Write
	}
	end := c.ex.Arrived + t.Body
	if !s.host.Process.Streams {
		return end
	}
	wait := race.StreamAfter
	if protocol.Interactive(c.ex.Request.Headers) {
		wait = race.GRPCStreamAfter
	}
	return min(end, c.heard+wait)
}

func (c *call) expire(now time.Duration) {
	s := c.session
	switch {
	case c.state == receiving && now >= c.ex.Arrived+s.host.Config.Timeouts.Body:
		c.refuse(fault.SlowBody)
	case c.state == receiving && s.host.Process.Budget.Full(s.account.Messages()+c.ex.Held):
		c.heard = now // a stream would be refused, and the request may only be slow
	case c.state == receiving:
		c.leave()
	case c.stream.Unsent() != c.unsent: // the client reads
		c.heard, c.unsent = now, c.stream.Unsent()
	default:
		s.host.Stats.WriteTimeouts++
		s.codec.Reset(c.stream, http2.Cancel)
		c.cancel()
	}
}

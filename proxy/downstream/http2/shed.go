package http2

import (
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// overBudget reports whether ex must not grow by n bytes: memory is short, and the connection holds
// more than its share.
func (s *session) overBudget(ex *exchange.Exchange, n int) bool {
	return s.host.Process.Budget.Full(s.account.Messages()+ex.Held) && s.use().Excludes(s.host.Shard, ex.HeldByRequest()+n)
}

func (s *session) OverShare(ex *exchange.Exchange) bool {
	return s.use().Excludes(s.host.Shard, ex.HeldByRequest())
}

func (s *session) use() shard.Use {
	return shard.Use{Held: s.Buffered(), Unread: s.unread(), Requests: len(s.calls)}
}

// Buffered implements shard.Holder.
func (s *session) Buffered() int {
	n := s.codec.Frames() + s.outbound.Counted() + s.account.Tables() + s.pending*callBytes
	for _, c := range s.calls {
		n += c.held()
	}
	return n
}

// unread returns the bytes of responses that wait for the client to read.
func (s *session) unread() int {
	n := s.outbound.Counted()
	for _, c := range s.calls {
		if c.state == sending {
			n += c.held()
		}
	}
	return n
}

// callBytes is what a call counts as beside its message while it waits for the client. Whoever opens a
// stream with a few bytes makes the loop keep an exchange for it. Limits of services bound the calls that
// wait for an endpoint.
const callBytes = 2 << 10

// recount charges the memory that the codec and pending calls hold to limits.buffered, tables included. The bodies of
// messages are charged by their exchange or response, and those of streams by their pipe.
func (s *session) recount() {
	if s.state == closed {
		s.account.Count(s.host.Shard, 0, 0)
		return
	}
	s.account.Count(s.host.Shard, s.codec.Encoded()+s.pending*callBytes, s.codec.Interned())
}

// Reclaimable returns the bytes of the tables of a connection that carries no request.
func (s *session) Reclaimable() int {
	if len(s.calls) > 0 {
		return 0
	}
	return s.account.Tables()
}

// ShedLargest implements shard.Holder. It drops a request that is incomplete or in flight, or a
// response that the client does not read.
func (s *session) ShedLargest() bool {
	var largest *call
	most := shard.LeastShed - 1
	for _, c := range s.calls {
		if n := c.held(); n > most {
			largest, most = c, n
		}
	}
	switch c := largest; {
	case c == nil:
		return false
	case c.state == receiving:
		c.refuse(fault.Shed)
	case c.ex != nil:
		c.ex.Shed()
	default:
		shard.ReportStream(s.host.Shard, exchange.ClientOf(s), "", fault.Shed)
		s.codec.Reset(c.stream, http2.EnhanceYourCalm)
		c.cancel()
	}
	s.recount()
	s.schedule(false)
	return true
}

// held returns the bytes that a call holds.
func (c *call) held() int {
	n := 0
	if c.stream != nil {
		n = c.stream.Held()
	}
	if c.ex != nil {
		n += c.ex.Buffered()
	}
	return n
}

func (s *session) CloseNow() {
	var inFlight []*exchange.Exchange
	for _, c := range s.calls {
		if c.ex != nil && c.state != receiving {
			inFlight = append(inFlight, c.ex)
		}
	}
	s.close()
	for _, ex := range inFlight {
		ex.AbandonNow()
	}
	s.host.Remove(s)
	s.outbound.Stop()
	s.conn.Close()
}

// HasInput implements the session of a worker.
func (s *session) HasInput() bool { return loop.HasInput(s.conn) }

// IdleFor implements the session of a worker.
func (s *session) IdleFor() time.Duration {
	if len(s.calls) > 0 {
		return 0
	}
	return s.timeout.IdleFor()
}

// CloseIdle closes an idle session. The client learns that no request on its way was processed.
func (s *session) CloseIdle() {
	if s.state == closed {
		return
	}
	s.codec.GoAway(http2.NoError)
	s.codec.GoAway(http2.NoError)
	s.writeLast()
	s.close()
	s.conn.Drain()
}

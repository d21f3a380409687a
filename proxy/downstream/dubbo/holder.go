package dubbo

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// overBudget reports whether a call of length bytes must be refused: memory is short, and the
// connection holds more than its share.
func (s *session) overBudget(length int) bool {
	return s.host.Process.Budget.Full(s.account.Messages()) && s.use(len(s.calls)+1).Excludes(s.host.Shard, length)
}

func (s *session) OverShare(ex *exchange.Exchange) bool {
	return s.use(len(s.calls)).Excludes(s.host.Shard, ex.HeldByRequest())
}

// use returns what the connection holds. Its responses are not kept back for a client that does not read.
func (s *session) use(calls int) shard.Use { return shard.Use{Held: s.Buffered(), Requests: calls} }

func (s *session) Buffered() int {
	n := s.account.Messages() + s.outbound.Counted()
	for _, ex := range s.calls {
		n += ex.Buffered()
	}
	return n
}

func (s *session) ShedLargest() bool {
	ex, held := exchange.LargestOf(slices.Values(s.calls))
	if held < shard.LeastShed {
		return false
	}
	ex.Shed()
	return true
}

func (s *session) CloseNow() {
	inFlight := s.calls
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

func (s *session) CloseIdle() { s.onTimeout(loop.TimeoutIdle) }

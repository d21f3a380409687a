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
	return s.host.Process.Budget.Full(s.held) && s.overShare(length, len(s.calls)+1)
}

func (s *session) OverShare(ex *exchange.Exchange) bool {
	return s.overShare(ex.HeldByRequest(), len(s.calls))
}

// overShare reports whether a call is too big for a connection over its share. Small calls of
// its many callers pass: together they add up to a share at most.
func (s *session) overShare(length, calls int) bool {
	share := s.host.Share()
	return length > share/calls && s.Buffered() > share
}

func (s *session) Buffered() int {
	n := s.held + s.outbound.Counted()
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

// IdleFor implements the session of a worker.
func (s *session) IdleFor() time.Duration {
	if len(s.calls) > 0 {
		return 0
	}
	return s.timeout.IdleFor()
}

func (s *session) CloseIdle() { s.onTimeout(loop.TimeoutIdle) }

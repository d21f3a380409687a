package dubbo

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// overBudget reports whether a call of length bytes must be refused: memory is short, and the
// connection holds more than its share.
func (s *session) overBudget(length int) bool {
	return s.host.Process.Budget.Full(s.account.Messages()) && s.use(s.calls.len()+1).Excludes(s.host.Shard, length)
}

// use returns what the connection holds. Its responses are not kept back for a client that does not read.
func (s *session) use(calls int) shard.Use { return shard.Use{Held: s.Buffered(), Requests: calls} }

// Buffered implements shard.Holder.
func (s *session) Buffered() int { return s.account.Messages() + s.output.counted() + s.calls.held() }

// recount charges the memory of an incomplete frame to limits.buffered.
func (s *session) recount() { s.account.Count(s.host.Shard, s.input.held()) }

// ShedLargest implements shard.Holder.
func (s *session) ShedLargest() bool {
	ex, held := s.calls.largest()
	if held < shard.LeastShed {
		return false
	}
	ex.Shed()
	return true
}

func (s *session) CloseNow() {
	inFlight := s.calls.inFlight()
	s.close()
	for _, ex := range inFlight {
		ex.AbandonNow()
	}
	s.host.Remove(s)
	s.output.stop()
	s.conn.Close()
}

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.conn.HasInput() }

// IdleFor implements downstream.session.
func (s *session) IdleFor() time.Duration {
	if s.calls.len() > 0 {
		return 0
	}
	return s.input.idleFor()
}

// CloseIdle implements downstream.session.
func (s *session) CloseIdle() { s.input.onTimeout(loop.TimeoutIdle) }

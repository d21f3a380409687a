package shard

import (
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
)

// budget counts the bytes of messages and of interning tables in memory (limits.buffered).
type budget struct {
	limit atomic.Int64 // at and above it, connections over their share get no new work
	// hard is the hard mark: at and above it the loops close the connections that hold the
	// most. Below it, requests in progress may still grow and responses arrive.
	hard  atomic.Int64
	bytes atomic.Int64
}

// Configure sets the limit and the hard mark.
func (b *budget) Configure(lim *config.Limits) {
	b.limit.Store(lim.Buffered)
	b.hard.Store(lim.Buffered + max(lim.Buffered/4, hardMessages*lim.Message))
}

func (b *budget) margin() int64 { return max(0, b.hard.Load()-b.limit.Load()) }

// hardMessages is the least distance of limit and hard mark, in messages of the maximum
// length: a message is in memory up to three times while it moves between connections.
const hardMessages = 4

// Full reports whether the limit is reached without the own bytes that the caller has
// counted. Connections over their share then get no new work.
func (b *budget) Full(own int) bool { return b.without(own) >= b.limit.Load() }

func (b *budget) without(own int) int64 { return b.bytes.Load() - int64(own) }

// Charge adds n bytes to the count; a negative n releases them. Any goroutine may call it.
func (b *budget) Charge(n int64) { b.bytes.Add(n) }

// Held returns the number of bytes counted.
func (b *budget) Held() int64 { return b.bytes.Load() }

// chargeStep is the number of bytes that a loop holds or releases before it updates the budget.
const chargeStep = 64 << 10

// Recount charges a holder's change of memory, from *counted to held bytes, and sets *counted.
func (s *Shard) Recount(counted *int, held int) {
	if held != *counted {
		s.charge(held - *counted)
		*counted = held
	}
}

// charge counts n bytes of messages taken into memory; a negative n releases them. It may run in
// the middle of a callback, see bufferBounds.
func (s *Shard) charge(n int) {
	s.Uncounted += int64(n)
	if s.Uncounted >= chargeStep || s.Uncounted <= -chargeStep {
		s.Process.Budget.Charge(s.Uncounted)
		if s.Uncounted > 0 && s.Process.Budget.overHardMark(0) {
			s.Loop.Defer(&s.Shedding)
		}
		s.Uncounted = 0
		s.Buffers.Ahead = min(s.Buffers.Ahead, s.roomAhead())
		s.Loop.Defer(&s.bounds.refill)
	} else if s.Buffers.Ahead <= s.bounds.low {
		s.Loop.Defer(&s.bounds.refill)
	}
}

// overHardMark reports whether the hard mark is reached, with delta bytes not counted yet.
func (b *budget) overHardMark(delta int64) bool { return b.bytes.Load()+delta >= b.hard.Load() }

// Relieved reports whether the process is below the hard mark by an eighth of the room between the marks.
func (s *Shard) Relieved() bool {
	b := &s.Process.Budget
	return !b.overHardMark(s.Uncounted + b.margin()/8)
}

// OverBudget reports whether the process has reached the hard mark.
func (s *Shard) OverBudget() bool { return s.Process.Budget.overHardMark(s.Uncounted) }

// Share returns the bytes that an accepted connection may hold and still get new work once
// limits.buffered is reached: an equal part of the room up to the hard mark. So a peer that
// fills memory stops only itself, and connections within their shares stay below the mark.
func (s *Shard) Share() int { return s.perConnection(s.Process.Budget.margin()) }

// ShareOfAll returns an equal part of all memory up to the hard mark, in bytes.
func (s *Shard) ShareOfAll() int { return s.perConnection(s.Process.Budget.hard.Load()) }

// perConnection divides bytes among the connections of all loops: one loop may have nearly all of them.
func (s *Shard) perConnection(bytes int64) int { return int(bytes / max(1, s.Process.Sessions.Load())) }

package shard

import (
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
)

// budget counts the bytes of messages held in memory (limits.buffered).
type budget struct {
	limit atomic.Int64 // from here on, greedy peers are refused new work
	// hard is the mark from which on the loops close what is greediest: past
	// the limit, what is in progress may still grow, and answers come in.
	hard  atomic.Int64
	bytes atomic.Int64
}

func (b *budget) Configure(lim *config.Limits) {
	b.limit.Store(lim.Buffered)
	b.hard.Store(lim.Buffered + max(lim.Buffered/4, hardMessages*lim.Message))
}

// room is what is between the two marks.
func (b *budget) room() int64 { return max(0, b.hard.Load()-b.limit.Load()) }

// hardMessages is how many of the longest messages the hard mark is above the
// limit at least: one is in memory up to three times while it moves from one
// connection to another.
const hardMessages = 4

// Full reports whether others than the caller, which has counted own bytes for
// itself, hold all there is. New work is then refused to greedy peers.
func (b *budget) Full(own int) bool { return b.bytes.Load()-int64(own) >= b.limit.Load() }

// Hold counts n bytes, or gives them back (n < 0). Any goroutine may call it.
func (b *budget) Hold(n int64) { b.bytes.Add(n) }

// Held is the number of bytes counted.
func (b *budget) Held() int64 { return b.bytes.Load() }

// chargeStep is how many bytes a loop may hold or free before it tells the
// process.
const chargeStep = 64 << 10

// Charge counts bytes of messages taken into memory (n > 0) or released.
func (s *Shard) Charge(n int) {
	s.Uncounted += int64(n)
	if s.Uncounted >= chargeStep || s.Uncounted <= -chargeStep {
		s.Process.Budget.Hold(s.Uncounted)
		if s.Uncounted > 0 && s.Process.Budget.overHardMark(0) {
			s.Loop.Defer(&s.Shedding)
		}
		s.Uncounted = 0
	}
}

// overHardMark reports whether the hard mark is passed, delta bytes not yet counted
// included.
func (b *budget) overHardMark(delta int64) bool { return b.bytes.Load()+delta >= b.hard.Load() }

// OverBudget reports whether the process holds more than the hard mark.
func (s *Shard) OverBudget() bool { return s.Process.Budget.overHardMark(s.Uncounted) }

// Share is how much an accepted connection may hold and still get new work done
// with limits.buffered reached: an equal part of what there is up to the hard
// mark. So one peer that piles up memory stops itself and not others, and
// many that stay within their shares don't take the loops past the hard mark.
func (s *Shard) Share() int { return s.perConnection(s.Process.Budget.room()) }

// ShareOfAll is an equal part of all memory up to the hard mark.
func (s *Shard) ShareOfAll() int { return s.perConnection(s.Process.Budget.hard.Load()) }

// perConnection divides bytes among the loops, and this one's among its connections.
func (s *Shard) perConnection(bytes int64) int {
	return int(bytes) / s.Process.Loops / max(1, s.Sessions)
}

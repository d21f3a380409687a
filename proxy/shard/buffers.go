package shard

import "time"

const (
	// maxKept bounds the bytes of unused buffers that a loop keeps for the next long
	// messages. All loops together keep at most 1/keptShare of limits.buffered. Kept
	// buffers are not counted against limits.buffered.
	maxKept   = 32 << 20
	keptShare = 8

	// keptFor is how long a loop keeps an unused buffer: at least once this, at most twice.
	keptFor = time.Second

	// aheadShare is the divisor of limits.buffered that yields how full it may be for buffers
	// to be reserved for whole messages with their first bytes. So what peers announce
	// and don't send takes no more than that.
	aheadShare = 4
)

// initBuffers makes the loop release buffers that it has not used for a while.
func (s *Shard) initBuffers() {
	s.Buffers.OnKept = func() { s.Loop.After(keptFor, &s.trimmer) }
	s.trimmer.Fire = func() {
		if s.Buffers.Trim() {
			s.Loop.After(keptFor, &s.trimmer)
		}
	}
}

func (s *Shard) boundBuffers() {
	share := s.Config.Limits.Buffered / keptShare / int64(s.Process.Loops)
	s.Buffers.Most = int(min(maxKept, share))
	s.boundAhead()
}

// boundAhead sets what the loop may reserve ahead. It is called whenever the budget has learned
// what the loop holds.
func (s *Shard) boundAhead() {
	room := s.Config.Limits.Buffered/aheadShare - s.Process.Budget.Held()
	s.Buffers.Ahead = int(max(0, room)) / s.Process.Loops
}

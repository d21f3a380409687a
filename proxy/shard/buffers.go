package shard

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

const (
	// maxKept bounds the bytes of unused buffers that a loop keeps for the next long
	// messages. All loops together keep at most 1/keptShare of limits.buffered for them. Kept
	// buffers are not counted against limits.buffered.
	maxKept   = 32 << 20
	keptShare = 8

	// keptFor is how long a loop keeps an unused long buffer: at least once this, at most twice.
	keptFor = time.Second

	// aheadShare is the divisor of limits.buffered that yields how full it may be for buffers
	// to be reserved for whole messages with their first bytes. So what peers announce and don't
	// send takes no more than that; with several loops, which learn of each other's bytes late, at
	// most twice as much. Connections that announce much and send little can take all of it. Then the buffers of all messages grow with what arrives, which costs
	// copies, but no message fails.
	aheadShare = 4
)

// bufferBounds keeps Buffers within its bounds. A message that is being received may have a buffer
// that is charged only when its callback ends. So charge may lower Buffers.Ahead, but not raise it.
type bufferBounds struct {
	trimmer loop.Timer // armed while Buffers keeps long buffers
	refill  loop.Flush // sets Ahead anew at the end of the turn, when all is charged
	low     int        // when Ahead is not above it, each charge defers refill
}

// initBuffers makes the loop release long buffers that it has not used for a while.
func (s *Shard) initBuffers() {
	s.bounds.refill.Do = s.boundAhead
	s.Buffers.OnKept = func() { s.Loop.After(keptFor, &s.bounds.trimmer) }
	s.bounds.trimmer.Fire = func() {
		if s.Buffers.Trim() {
			s.Loop.After(keptFor, &s.bounds.trimmer)
		}
	}
}

func (s *Shard) boundBuffers() {
	share := s.Config.Limits.Buffered / keptShare / int64(s.Process.Loops)
	s.Buffers.Most = int(min(maxKept, share))
	s.boundAhead()
}

// boundAhead sets what the loop may reserve ahead. No message may have a buffer that is not charged.
func (s *Shard) boundAhead() {
	s.Buffers.Ahead = s.roomAhead()
	s.bounds.low = max(s.Buffers.Ahead/2, chargeStep)
}

// roomAhead returns the loop's part of what may be reserved ahead.
func (s *Shard) roomAhead() int {
	held := s.Process.Budget.Held() + s.Uncounted
	return int(max(0, s.Config.Limits.Buffered/aheadShare-held)) / s.Process.Loops
}

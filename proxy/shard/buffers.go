package shard

import "time"

const (
	// maxKept is how many bytes of buffers that are not in use a loop keeps at most
	// for the next long messages. All loops together never keep more than a share of
	// limits.buffered, one in keptShare, and do not count it there.
	maxKept   = 16 << 20
	keptShare = 8

	// keptFor is how long a loop keeps what it does not use: so long at least, and
	// at most twice.
	keptFor = time.Second
)

// initBuffers sees to it that what is kept is let go of at rest.
func (s *Shard) initBuffers() {
	s.Buffers.OnKept = func() { s.Loop.After(keptFor, &s.trimmer) }
	s.trimmer.Fire = func() {
		if s.Buffers.Trim() {
			s.Loop.After(keptFor, &s.trimmer)
		}
	}
}

// boundBuffers sets how much is kept, by the limits and the number of loops.
func (s *Shard) boundBuffers() {
	share := s.Config.Limits.Buffered / keptShare / int64(s.Process.Loops)
	s.Buffers.Most = int(min(maxKept, share))
}

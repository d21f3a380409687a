package proxy

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
func (s *shard) initBuffers() {
	s.buffers.OnKept = func() { s.loop.After(keptFor, &s.trimmer) }
	s.trimmer.Fire = func() {
		if s.buffers.Trim() {
			s.loop.After(keptFor, &s.trimmer)
		}
	}
}

// boundBuffers sets how much is kept, by the limits and the number of loops.
func (s *shard) boundBuffers() {
	share := s.cfg.Limits.Buffered / keptShare / int64(s.shared.loops)
	s.buffers.Most = int(min(maxKept, share))
}

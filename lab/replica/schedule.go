package replica

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Freeze is a time in which no work of the replica advances, as offsets from the schedule's
// epoch.
type Freeze struct{ Start, End time.Duration }

// Schedule is an endless random sequence of freezes, fixed by its seed. Gaps between the end
// of one freeze and the start of the next are exponential; all freezes have the same length.
// Each window of the sequence is made from the seed and the window's number. So processes that
// share a seed and an epoch agree about each moment, however late they start.
//
// A Schedule is not safe for concurrent use. A time may be at most a minute before an earlier
// one.
type Schedule struct {
	seed         uint64
	mean, length time.Duration
	from         time.Duration

	window    int64    // the next window to make
	freezes   []Freeze // made and not yet forgotten, in order of Start
	forgotten int64    // number of forgotten freezes that began after from
}

// windowMeans is the length of a window in mean gaps.
const windowMeans = 64

// keep is how long an ended freeze is kept.
const keep = time.Minute

// NewSchedule makes a schedule of freezes of the given length with gaps of the given mean. The
// first time that it is asked about is the offset from. A mean or length of 0 means no
// freezes.
func NewSchedule(seed uint64, mean, length, from time.Duration) *Schedule {
	s := &Schedule{seed: seed, mean: mean, length: length, from: from}
	if s.active() && from > 0 {
		// One window earlier: its last freeze may reach into this one.
		s.window = max(0, int64(from/(windowMeans*mean))-1)
	}
	return s
}

func (s *Schedule) active() bool { return s.mean > 0 && s.length > 0 }

// Finish returns the end of work that begins at start. Work advances only between freezes.
func (s *Schedule) Finish(start, work time.Duration) time.Duration {
	if !s.active() {
		return start + work
	}
	s.forget(start - keep)
	t := start
	for i := 0; ; i++ {
		s.ensure(i)
		f := s.freezes[i]
		switch {
		case f.End <= t: // over before t
		case f.Start > t && f.Start-t >= work:
			return t + work
		default:
			work -= max(0, f.Start-t)
			t = f.End
		}
	}
}

// Begun counts the freezes that began between the offset from of NewSchedule and now.
func (s *Schedule) Begun(now time.Duration) int64 {
	if !s.active() {
		return 0
	}
	n := s.forgotten
	for i := 0; ; i++ {
		s.ensure(i)
		f := s.freezes[i]
		if f.Start > now {
			return n
		}
		if f.Start >= s.from {
			n++
		}
	}
}

// forget drops the freezes that ended before t.
func (s *Schedule) forget(t time.Duration) {
	n := 0
	for n < len(s.freezes) && s.freezes[n].End < t {
		if s.freezes[n].Start >= s.from {
			s.forgotten++
		}
		n++
	}
	s.freezes = slices.Delete(s.freezes, 0, n)
}

// ensure makes windows until there is an i-th freeze.
func (s *Schedule) ensure(i int) {
	for len(s.freezes) <= i {
		span := windowMeans * s.mean
		begin := time.Duration(s.window) * span
		rng := rand.New(rand.NewPCG(s.seed, uint64(s.window)))
		gap := func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(s.mean)) }
		for t := begin + gap(); t < begin+span; {
			s.freezes = append(s.freezes, Freeze{Start: t, End: t + s.length})
			t += s.length + gap()
		}
		s.window++
	}
}

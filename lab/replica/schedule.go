package replica

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Freeze is a time in which no work advances, as offsets from the schedule's epoch.
type Freeze struct{ Start, End time.Duration }

// Schedule is an endless random sequence of freezes of one length, with exponential gaps between
// them. Each window of it is made from the seed and the window's number, so that processes with
// one seed and epoch agree about each moment, however late they start. It is not safe for
// concurrent use.
type Schedule struct {
	seed         uint64
	mean, length time.Duration
	windows      map[time.Duration][]Freeze // those of recent calls, by their numbers
}

// windowMeans is the length of a window in mean gaps.
const windowMeans = 64

// maxWindows bounds the windows that are kept. Work needs that of its start, and those around it.
const maxWindows = 4

// NewSchedule makes a schedule of the given mean gap and length. 0 for either means no freezes.
func NewSchedule(seed uint64, mean, length time.Duration) *Schedule {
	return &Schedule{seed: seed, mean: mean, length: length, windows: map[time.Duration][]Freeze{}}
}

// Finish returns the end of work that begins at start. Work advances only between freezes.
func (s *Schedule) Finish(start, work time.Duration) time.Duration {
	t := start
	for f := range s.from(start) {
		switch {
		case f.End <= t: // over before t
		case f.Start > t && f.Start-t >= work:
			return t + work
		default:
			work -= max(0, f.Start-t)
			t = f.End
		}
	}
	return t + work
}

// Begun counts the freezes that begin after one offset, and not after another.
func (s *Schedule) Begun(after, until time.Duration) (n int64) {
	for f := range s.from(after) {
		if f.Start > until {
			break
		}
		if f.Start > after {
			n++
		}
	}
	return n
}

// from returns the freezes in order of Start, with all that end after t.
func (s *Schedule) from(t time.Duration) iter.Seq[Freeze] {
	return func(yield func(Freeze) bool) {
		if s.mean == 0 || s.length == 0 {
			return
		}
		// One window earlier: its last freeze may reach into this one.
		for window := max(0, t/(windowMeans*s.mean)-1); ; window++ {
			for _, f := range s.in(window) {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// in returns the freezes that begin in a window.
func (s *Schedule) in(window time.Duration) []Freeze {
	if freezes, ok := s.windows[window]; ok {
		return freezes
	}
	if len(s.windows) == maxWindows {
		clear(s.windows)
	}
	span := windowMeans * s.mean
	rng := rand.New(rand.NewPCG(s.seed, uint64(window)))
	gap := func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(s.mean)) }
	var freezes []Freeze
	for t := window*span + gap(); t < (window+1)*span; t += s.length + gap() {
		freezes = append(freezes, Freeze{Start: t, End: t + s.length})
	}
	s.windows[window] = freezes
	return freezes
}

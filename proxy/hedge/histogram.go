package hedge

import (
	"math"
	"math/bits"
	"time"
)

// The histogram is log-linear over microseconds: exact to 1 µs below 64 µs, then 32 buckets per
// doubling. A bucket is at most 1/32 of its latency wide, so its middle is within 1.6% (or half
// a microsecond) of each sample in it. The last ends at 2^26 µs, 67 s.
const (
	subBits  = 5
	linear   = 1 << (subBits + 1)
	topBits  = 26
	nBuckets = linear + (topBits-subBits-1)<<subBits
)

func bucketOf(d time.Duration) int {
	if d < 0 {
		return 0
	}
	us := uint64(d / time.Microsecond)
	if us < linear {
		return int(us)
	}
	if us >= 1<<topBits {
		return nBuckets - 1
	}
	shift := bits.Len64(us) - subBits - 1
	return shift<<subBits + int(us>>shift)
}

// lowOf returns the lowest latency of a bucket.
func lowOf(bucket int) time.Duration {
	if bucket < linear {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := bucket>>subBits - 1
	return time.Duration((bucket-shift<<subBits)<<shift) * time.Microsecond
}

func middleOf(bucket int) time.Duration {
	low := lowOf(bucket)
	return low + (lowOf(bucket+1)-low)/2
}

// halfWindow counts the samples of half a window; censored ones are slower than every bucket.
type halfWindow struct {
	epoch    int64 // its number, counted from the start of the clock
	finite   uint32
	censored uint32
	counts   [nBuckets]uint32
}

func (h *halfWindow) add(d time.Duration) {
	h.finite++
	h.counts[bucketOf(d)]++
}

// window consists of the current half-window and the previous one: it covers one to two
// half-widths. A half-window's index is the parity of its epoch. The zero value is empty.
type window struct{ halves [2]halfWindow }

// at returns the half-window of now, cleared if it belonged to an earlier epoch.
func (w *window) at(now, width time.Duration) *halfWindow {
	epoch := int64(now / width)
	h := &w.halves[epoch&1]
	if h.epoch != epoch {
		*h = halfWindow{epoch: epoch}
	}
	return h
}

// snapshot is a window at one moment. It skips expired half-windows: reading must not mutate.
type snapshot struct {
	halves           [2]*halfWindow // nil if empty or expired
	finite, censored uint64
}

func (w *window) read(now, width time.Duration) snapshot {
	var s snapshot
	epoch := int64(now / width)
	for i := range w.halves {
		h := &w.halves[i]
		if h.epoch < epoch-1 || h.epoch > epoch {
			continue
		}
		s.halves[i] = h
		s.finite += uint64(h.finite)
		s.censored += uint64(h.censored)
	}
	return s
}

func (s *snapshot) samples() uint64 { return s.finite + s.censored }

// quantile returns the q-quantile. ok is false if there is none, or it is a censored sample.
func (s *snapshot) quantile(q float64) (d time.Duration, ok bool) {
	rank := max(1, uint64(math.Ceil(q*float64(s.samples()))))
	if rank > s.finite {
		return 0, false
	}
	var seen uint64
	for i := range nBuckets {
		for _, h := range s.halves {
			if h != nil {
				seen += uint64(h.counts[i])
			}
		}
		if seen >= rank {
			return middleOf(i), true
		}
	}
	return 0, false
}

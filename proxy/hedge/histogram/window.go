// Package histogram counts latencies in buckets, over a window of time.
//
// The histogram is log-linear over microseconds, as HdrHistogram's: exact to 1 µs below 64 µs, then
// 32 buckets per doubling. A bucket is at most 1/32 of its latency wide, so its middle is within 1.6%
// (or half a microsecond) of each sample in it. The last bucket ends at 2^26 µs, 67 s. A histogram takes 6 KiB.
//
// A sample may be right-censored: of a request that was given up, it is only known that it takes longer.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

const (
	subBits = 5 // 32 buckets per doubling; one bit less or more doubles or halves the error
	linear  = 1 << (subBits + 1)
	topBits = 26 // longer latencies than 67 s are those of no request that is waited for

	// Buckets is the number of buckets.
	Buckets = linear + (topBits-subBits-1)<<subBits
)

// BucketOf returns the bucket of a latency, from 0 to Buckets-1.
func BucketOf(d time.Duration) int {
	if d < 0 {
		return 0
	}
	us := uint64(d / time.Microsecond)
	if us < linear {
		return int(us)
	}
	if us >= 1<<topBits {
		return Buckets - 1
	}
	shift := bits.Len64(us) - subBits - 1
	return shift<<subBits + int(us>>shift)
}

// LowOf returns the lowest latency of a bucket.
func LowOf(bucket int) time.Duration {
	if bucket < linear {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := bucket>>subBits - 1
	return time.Duration((bucket-shift<<subBits)<<shift) * time.Microsecond
}

// MiddleOf returns the latency in the middle of a bucket.
func MiddleOf(bucket int) time.Duration {
	low := LowOf(bucket)
	return low + (LowOf(bucket+1)-low)/2
}

// Half counts the samples of half a window; censored ones are slower than every bucket.
type Half struct {
	epoch    int64 // its number, counted from the start of the clock
	finite   uint32
	censored uint32
	counts   [Buckets]uint32
}

// Add counts a latency.
func (h *Half) Add(d time.Duration) {
	h.finite++
	h.counts[BucketOf(d)]++
}

// Censor counts a sample of which it is only known that it is slower than every bucket.
func (h *Half) Censor() { h.censored++ }

// Window consists of the current half-window and the previous one: it covers one to two
// half-widths. A half-window's index is the parity of its epoch. The zero value is empty, and takes no memory: most routes of a
// sidecar with many have no requests.
type Window struct{ halves [2]*Half } // nil until there is a sample

// At returns the half-window of now, cleared if it belonged to an earlier epoch. width is the length of
// a half-window, the same in each call.
func (w *Window) At(now, width time.Duration) *Half {
	epoch := int64(now / width)
	h := w.halves[epoch&1]
	if h == nil {
		h = &Half{epoch: epoch}
		w.halves[epoch&1] = h
	} else if h.epoch != epoch {
		*h = Half{epoch: epoch}
	}
	return h
}

// Clone returns a window with the same samples.
func (w *Window) Clone() (c Window) {
	for i, h := range w.halves {
		if h != nil {
			own := *h
			c.halves[i] = &own
		}
	}
	return c
}

// Snapshot is a window at one moment. It is valid until the window changes.
type Snapshot struct {
	halves           [2]*Half // nil if empty or expired
	finite, censored uint64
}

// Read returns the half-windows that have not expired. It changes nothing.
func (w *Window) Read(now, width time.Duration) Snapshot {
	var s Snapshot
	epoch := int64(now / width)
	for i, h := range w.halves {
		if h == nil || h.epoch < epoch-1 || h.epoch > epoch {
			continue
		}
		s.halves[i] = h
		s.finite += uint64(h.finite)
		s.censored += uint64(h.censored)
	}
	return s
}

// Samples returns the number of samples, censored ones included.
func (s *Snapshot) Samples() uint64 { return s.finite + s.censored }

// Quantile returns the q-quantile. ok is false if there is none, or it is a censored sample.
func (s *Snapshot) Quantile(q float64) (d time.Duration, ok bool) {
	rank := max(1, uint64(math.Ceil(q*float64(s.Samples()))))
	if rank > s.finite {
		return 0, false
	}
	var seen uint64
	for i := range Buckets {
		for _, h := range s.halves {
			if h != nil {
				seen += uint64(h.counts[i])
			}
		}
		if seen >= rank {
			return MiddleOf(i), true
		}
	}
	return 0, false
}

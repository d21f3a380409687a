package stats

import "math/bits"

// SizeBuckets is the number of buckets of a SizeHistogram.
const SizeBuckets = 9

// SizeHistogram counts small numbers, such as what one write carries: up to 1,
// 2, 4 and so on to 128, and more. The zero value is empty; it is a plain value,
// owned by one loop.
type SizeHistogram struct {
	Counts [SizeBuckets]uint64
	Sum    uint64
}

// Observe counts n, which is not negative.
func (h *SizeHistogram) Observe(n int) {
	h.Counts[min(bits.Len(uint(max(n-1, 0))), SizeBuckets-1)]++
	h.Sum += uint64(n)
}

// Add adds o to h.
func (h *SizeHistogram) Add(o *SizeHistogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

package stats

import "math/bits"

// SizeBuckets is the number of buckets of a SizeHistogram.
const SizeBuckets = 9

// SizeHistogram counts small numbers, such as the messages in one write. The bounds of
// its buckets are 1, 2, 4 and so on to 128; the last bucket has no bound. It is a plain
// value that one loop owns. The zero value is empty.
type SizeHistogram struct {
	Counts [SizeBuckets]uint64
	Sum    uint64
}

// Observe counts n, which must not be negative.
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

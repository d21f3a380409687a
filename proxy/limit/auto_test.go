package limit

import (
	"testing"
	"time"
)

// The number of responses and the sum of their latencies share a word.
func TestSampleSums(t *testing.T) {
	sum := Sample(1500*time.Microsecond) + Sample(2*longestSample)
	want := uint64((1500*time.Microsecond + longestSample) / time.Microsecond)
	if responses, latency := sum>>sumBits, sum&(1<<sumBits-1); responses != 2 || latency != want {
		t.Errorf("%d responses of %d µs in all, want 2 of %d", responses, latency, want)
	}
}

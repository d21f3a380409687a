package limit

import (
	"testing"
	"time"
)

// A number of answers and the sum of their latencies share a word.
func TestSampleSums(t *testing.T) {
	sum := Sample(1500*time.Microsecond) + Sample(2*longestSample)
	want := uint64((1500*time.Microsecond + longestSample) / time.Microsecond)
	if answers, latency := sum>>sumBits, sum&(1<<sumBits-1); answers != 2 || latency != want {
		t.Errorf("%d answers of %d us, want 2 of %d", answers, latency, want)
	}
}

package stats

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestHistogramBounds(t *testing.T) {
	for i, want := range map[int]time.Duration{
		0: 10 * time.Microsecond, 8: 90 * time.Microsecond, 9: 100 * time.Microsecond,
		18: time.Millisecond, 19: 2 * time.Millisecond, 27: 10 * time.Millisecond, 45: time.Second,
		HistogramBuckets - 2: 60 * time.Second, HistogramBuckets - 1: 1<<63 - 1,
	} {
		if got := HistogramBound(i); got != want {
			t.Errorf("bound %d is %v, want %v", i, got, want)
		}
	}
	for i := 1; i < HistogramBuckets; i++ {
		if HistogramBound(i) <= HistogramBound(i-1) {
			t.Errorf("bound %d, %v, is not above %v", i, HistogramBound(i), HistogramBound(i-1))
		}
	}
}

// TestHistogramBucket observes durations on, next to and between the bounds.
func TestHistogramBucket(t *testing.T) {
	check := func(d time.Duration) {
		t.Helper()
		i := histogramBucket(d)
		if d > HistogramBound(i) || i > 0 && d <= HistogramBound(i-1) {
			t.Errorf("%v is in bucket %d, whose bound is %v", d, i, HistogramBound(i))
		}
	}
	for i := range HistogramBuckets - 1 {
		check(HistogramBound(i) - 1)
		check(HistogramBound(i))
		check(HistogramBound(i) + 1)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		check(time.Duration(rnd.Int64N(int64(time.Second) << rnd.IntN(7))))
	}
	check(0)
	check(1<<63 - 1)
}

func TestHistogramQuantile(t *testing.T) {
	var h, sum Histogram
	if q := h.Quantile(0.5); q != 0 {
		t.Errorf("the median of an empty histogram is %v", q)
	}
	for i := range 100 {
		h.Observe(time.Duration(i+1) * time.Millisecond)
	}
	h.Observe(-time.Second)
	sum.Add(&h)
	sum.Add(&h)
	if sum.Count() != 202 || sum.Sum != 2*5050*time.Millisecond {
		t.Errorf("count %d, sum %v", sum.Count(), sum.Sum)
	}
	for q, want := range map[float64]time.Duration{
		0: 10 * time.Microsecond, 0.5: 50 * time.Millisecond, 0.99: 100 * time.Millisecond, 1: 100 * time.Millisecond,
	} {
		if got := sum.Quantile(q); got != want {
			t.Errorf("the %v-quantile is %v, want %v", q, got, want)
		}
	}
	h.Observe(time.Hour)
	if got := h.Quantile(1); got != histogramTop {
		t.Errorf("above all bounds: %v", got)
	}
}

func TestHistogramAllocs(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Observe(3 * time.Millisecond) }); n != 0 {
		t.Errorf("Observe allocates %v times", n)
	}
}

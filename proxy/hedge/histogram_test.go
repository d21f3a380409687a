package hedge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < 70*time.Second; d += max(time.Microsecond, d/200) {
		b := bucketOf(d)
		if b < last || b >= nBuckets {
			t.Fatalf("%v is in bucket %d, after %d of %d", d, b, last, nBuckets)
		}
		last = b
		if d < 50*time.Microsecond || d > time.Minute {
			continue
		}
		if err := math.Abs(float64(middleOf(b)-d)) / float64(d); err > 0.03 {
			t.Fatalf("%v is shown as %v, %.1f%% off", d, middleOf(b), 100*err)
		}
	}
	for d, want := range map[time.Duration]int{-ms: 0, 0: 0, time.Hour: nBuckets - 1, math.MaxInt64: nBuckets - 1} {
		if got := bucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for b := range nBuckets {
		if got := bucketOf(middleOf(b)); got != b {
			t.Fatalf("the middle of bucket %d is in bucket %d", b, got)
		}
	}
}

func TestQuantileAgainstSorted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{100, 101, 5000} {
		var e Estimator
		var all []time.Duration
		for range n {
			d := time.Duration(math.Exp(rnd.NormFloat64()) * float64(ms))
			e.Observe(0, d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.9, 0.97, 0.999, 1} {
			got, ok := quantile(&e, 0, q)
			want := all[int(math.Ceil(q*float64(n)))-1]
			if !ok || math.Abs(float64(got-want)) > 0.03*float64(want) {
				t.Errorf("%d samples: the %v-quantile is %v (%v), want %v", n, q, got, ok, want)
			}
		}
	}
}

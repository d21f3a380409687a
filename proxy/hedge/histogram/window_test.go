package histogram

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
		b := BucketOf(d)
		if b < last || b >= Buckets {
			t.Fatalf("%v is in bucket %d, after %d of %d", d, b, last, Buckets)
		}
		last = b
		if d < 50*time.Microsecond || d > time.Minute {
			continue
		}
		if err := math.Abs(float64(MiddleOf(b)-d)) / float64(d); err > 0.03 {
			t.Fatalf("%v is shown as %v, %.1f%% off", d, MiddleOf(b), 100*err)
		}
	}
	for d, want := range map[time.Duration]int{-time.Millisecond: 0, 0: 0, time.Hour: Buckets - 1, math.MaxInt64: Buckets - 1} {
		if got := BucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for b := range Buckets {
		if got := BucketOf(MiddleOf(b)); got != b {
			t.Fatalf("the middle of bucket %d is in bucket %d", b, got)
		}
	}
}

func TestQuantileAgainstSorted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{100, 101, 5000} {
		var w Window
		var all []time.Duration
		for range n {
			d := time.Duration(math.Exp(rnd.NormFloat64()) * float64(time.Millisecond))
			w.At(0, time.Second).Add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		s := w.Read(0, time.Second)
		for _, q := range []float64{0.01, 0.5, 0.9, 0.97, 0.999, 1} {
			got, ok := s.Quantile(q)
			want := all[int(math.Ceil(q*float64(n)))-1]
			if !ok || math.Abs(float64(got-want)) > 0.03*float64(want) {
				t.Errorf("%d samples: the %v-quantile is %v (%v), want %v", n, q, got, ok, want)
			}
		}
	}
}

// TestClone: a clone has the samples of a window, and later samples of one are not those of the other. A window without
// samples takes no memory for them.
func TestClone(t *testing.T) {
	var w Window
	if c := w.Clone(); c.halves != [2]*Half{} || w.halves != [2]*Half{} {
		t.Errorf("without samples: %v, %v", w, c)
	}
	const width = time.Second
	w.At(0, width).Add(time.Millisecond)
	c := w.Clone()
	w.At(0, width).Add(time.Millisecond)
	c.At(0, width).Censor()
	one, other := w.Read(0, width), c.Read(0, width)
	if one.finite != 2 || one.censored != 0 || other.finite != 1 || other.censored != 1 {
		t.Errorf("%d and %d samples, and of the clone %d and %d", one.finite, one.censored, other.finite, other.censored)
	}
}

package histogram

import (
	"testing"
	"time"
)

const (
	ms    = time.Millisecond
	width = time.Second
)

// of returns a distribution with so many samples of 1 ms, of 2 ms, and censored ones.
func of(one, two, censored int64) (d Distribution) {
	d.Counts[BucketOf(ms)], d.Counts[BucketOf(2*ms)], d.Censored = one, two, censored
	return d
}

func check(t *testing.T, what string, got, want Distribution) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, %d and %d censored, want %d, %d and %d", what, got.Counts[BucketOf(ms)], got.Counts[BucketOf(2*ms)], got.Censored,
			want.Counts[BucketOf(ms)], want.Counts[BucketOf(2*ms)], want.Censored)
	}
}

// TestSums: distributions are added up, and taken away again.
func TestSums(t *testing.T) {
	d, o := of(1, 2, 3), of(10, 20, 30)
	d.Add(&o)
	check(t, "the sum", d, of(11, 22, 33))
	if n := d.Samples(); n != 66 {
		t.Errorf("%d samples, want 66", n)
	}
	part := of(1, 2, 3)
	d.Remove(&part)
	check(t, "the rest", d, o)
}

// TestSpread: censored samples get the latencies of others, in proportion.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ d, o, want Distribution }{
		{of(0, 0, 10), of(1, 3, 5), of(2, 8, 0)}, {of(7, 1, 10), of(1, 0, 0), of(17, 1, 0)}, {of(1, 1, 10), of(0, 0, 5), of(1, 1, 10)}, {of(1, 1, 0), of(1, 1, 1), of(1, 1, 0)},
	} {
		got := c.d
		got.Spread(&c.o)
		check(t, "spread", got, c.want)
	}
}

// TestUncensor: samples take the place of as many censored ones.
func TestUncensor(t *testing.T) {
	for _, c := range []struct{ d, o, want Distribution }{
		{of(1, 1, 5), of(1, 0, 1), of(2, 1, 4)}, {of(0, 0, 1), of(2, 1, 0), of(2, 1, 0)}, {of(1, 0, 2), of(0, 2, 0), of(1, 2, 0)},
	} {
		got := c.d
		got.Uncensor(c.o)
		check(t, "uncensored", got, c.want)
	}
}

// TestLaterThan: the share of the requests that took longer, censored ones among them.
func TestLaterThan(t *testing.T) {
	d := of(3, 1, 1)
	for latency, want := range map[time.Duration]float64{0: 1, ms: .4, 2 * ms: .2, time.Hour: .2} {
		if got := d.LaterThan(latency); got != want {
			t.Errorf("than %v: %v, want %v", latency, got, want)
		}
	}
	one := of(0, 1, 0)
	if got := one.LaterThan(ms); got != 1 {
		t.Errorf("of one: %v", got)
	}
	if got := new(Distribution).LaterThan(ms); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

// TestCensoredQuantiles: a quantile among censored samples is unknown.
func TestCensoredQuantiles(t *testing.T) {
	var w Window
	h := w.At(width, width)
	h.Add(ms)
	h.Add(2 * ms)
	h.Censor()
	h.Censor()
	s, d := w.Read(width, width), w.Distribution(width, width)
	check(t, "the window", d, of(1, 1, 2))
	if s.Samples() != 4 || d.Samples() != 4 {
		t.Errorf("%d and %d samples, want 4", s.Samples(), d.Samples())
	}
	for q, want := range map[float64]time.Duration{0: ms, .25: ms, .26: 2 * ms, .5: 2 * ms, .51: 0, 1: 0} {
		if want != 0 {
			want = MiddleOf(BucketOf(want))
		}
		if got, ok := s.Quantile(q); got != want || ok != (want != 0) {
			t.Errorf("the %v-quantile of the window: %v, %t, want %v", q, got, ok, want)
		}
		if got, ok := d.Quantile(q); got != want || ok != (want != 0) {
			t.Errorf("the %v-quantile: %v, %t, want %v", q, got, ok, want)
		}
	}
	var none Window
	s = none.Read(0, width)
	if got, ok := s.Quantile(.5); got != 0 || ok {
		t.Errorf("of none: %v, %t", got, ok)
	}
}

// TestWindow: a window has its present half and the one before, and none of another time.
func TestWindow(t *testing.T) {
	for _, c := range []struct {
		added, read time.Duration
		want        uint64
	}{
		{0, 0, 1}, {0, width, 1}, {width - 1, 2*width - 1, 1}, {0, 2*width - 1, 1}, {0, 2 * width, 0}, {width, 2*width - 1, 1}, {width, 3*width - 1, 1}, {width, 3 * width, 0},
		{3 * width, 3*width - 1, 0},
	} {
		var w Window
		w.At(c.added, width).Add(ms)
		if s := w.Read(c.read, width); s.Samples() != c.want {
			t.Errorf("added at %v, read at %v: %d samples, want %d", c.added, c.read, s.Samples(), c.want)
		}
	}
	var w Window
	for i := range time.Duration(10) {
		w.At(i*width, width).Add(ms)
		w.At(i*width+width/2, width).Add(ms)
	}
	if s := w.Read(9*width, width); s.Samples() != 4 {
		t.Errorf("%d samples of two halves with two each", s.Samples())
	}
}

// TestLastBucket: it has all latencies from its lower bound on.
func TestLastBucket(t *testing.T) {
	const top = time.Microsecond << topBits
	for _, d := range []time.Duration{LowOf(Buckets - 1), top - 1, top, top + time.Microsecond, 2 * top} {
		if got := BucketOf(d); got != Buckets-1 {
			t.Errorf("%v is in bucket %d, want %d", d, got, Buckets-1)
		}
	}
}

// TestMiddle: the middle of a bucket is that of its bounds.
func TestMiddle(t *testing.T) {
	for b := range Buckets {
		if low, high := LowOf(b), LowOf(b+1); MiddleOf(b) != (low+high)/2 || BucketOf(low) != b || BucketOf(high-1) != b {
			t.Fatalf("bucket %d from %v to %v: the middle is %v", b, low, high, MiddleOf(b))
		}
	}
}

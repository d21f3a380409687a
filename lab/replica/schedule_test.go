package replica

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	msec = time.Millisecond
	mean = 2 * time.Second
	long = 50 * msec
)

// first returns the first n freezes of a seed.
func first(seed uint64, n int) (freezes []Freeze) {
	for f := range NewSchedule(seed, mean, long).from(0) {
		if len(freezes) == n {
			break
		}
		freezes = append(freezes, f)
	}
	return freezes
}

func TestScheduleSeed(t *testing.T) {
	a, b, other := first(7, 200), first(7, 200), first(8, 200)
	differ := 0
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("freeze %d: %v and %v from one seed", i, a[i], b[i])
		}
		if a[i] != other[i] {
			differ++
		}
	}
	if differ < 190 {
		t.Errorf("two seeds share %d of 200 freezes", 200-differ)
	}
}

func TestScheduleGaps(t *testing.T) {
	const n = 4000
	freezes := first(3, n)
	var sum float64
	short := 0 // gaps below the median of an exponential distribution
	for i := 1; i < n; i++ {
		if got := freezes[i].End - freezes[i].Start; got != long {
			t.Fatalf("freeze %d lasts %v", i, got)
		}
		gap := freezes[i].Start - freezes[i-1].End
		sum += gap.Seconds()
		if gap.Seconds() < mean.Seconds()*math.Ln2 {
			short++
		}
	}
	// Four standard errors of each estimate.
	if got := sum / (n - 1); math.Abs(got-2) > 4*2/math.Sqrt(n) {
		t.Errorf("mean gap %.3f s, want about 2", got)
	}
	if got := float64(short) / (n - 1); math.Abs(got-.5) > 4*.5/math.Sqrt(n) {
		t.Errorf("%.3f of the gaps are below the median", got)
	}
}

// TestSchedulesAgree checks that processes with one seed agree about the moments they share,
// although they start at different times.
func TestSchedulesAgree(t *testing.T) {
	early := NewSchedule(5, mean, long)
	for _, from := range []time.Duration{time.Second, 127 * time.Second, 129 * time.Second, 4000 * time.Second} {
		late := NewSchedule(5, mean, long)
		for i := range 2000 {
			at := from + time.Duration(i)*7*msec
			if a, b := early.Finish(at, msec), late.Finish(at, msec); a != b {
				t.Fatalf("work started at %v: done at %v, but at %v for one that started at %v", at, a, b, from)
			}
		}
	}
}

func TestFinish(t *testing.T) {
	f := first(1, 1)[0]
	for _, tt := range []struct {
		name        string
		start, work time.Duration
		want        time.Duration
	}{
		{"ends before", f.Start - 10*msec, 5 * msec, f.Start - 5*msec},
		{"ends as it begins", f.Start - 5*msec, 5 * msec, f.Start},
		{"caught half-way", f.Start - 2*msec, 5 * msec, f.End + 3*msec},
		{"comes as it begins", f.Start, 5 * msec, f.End + 5*msec},
		{"comes meanwhile", f.Start + 49*msec, 5 * msec, f.End + 5*msec},
		{"comes as it ends", f.End, 5 * msec, f.End + 5*msec},
		{"no work, frozen", f.Start + msec, 0, f.End},
	} {
		if got := NewSchedule(1, mean, long).Finish(tt.start, tt.work); got != tt.want {
			t.Errorf("%s: done at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFinishLongWork(t *testing.T) {
	freezes := first(1, 4)
	work := freezes[3].Start - 3*long - msec // ends 1 ms before the fourth begins
	if got, want := NewSchedule(1, mean, long).Finish(0, work), freezes[3].Start-msec; got != want {
		t.Errorf("done at %v, want %v", got, want)
	}
}

func TestBegun(t *testing.T) {
	freezes := first(2, 300)
	from := freezes[20].Start + 1
	s := NewSchedule(2, mean, long)
	for i := 21; i < 300; i++ {
		if got := s.Begun(from, freezes[i].Start-1); got != int64(i-21) {
			t.Fatalf("before freeze %d: %d begun, want %d", i, got, i-21)
		}
		if got := s.Begun(from, freezes[i].Start); got != int64(i-20) {
			t.Fatalf("at freeze %d: %d begun, want %d", i, got, i-20)
		}
		if got := s.Begun(freezes[i].Start, freezes[i].Start); got != 0 {
			t.Fatalf("after freeze %d: %d begun, want none", i, got)
		}
	}
	if len(s.windows) > maxWindows {
		t.Errorf("%d windows are kept", len(s.windows))
	}
}

func TestNoFreezes(t *testing.T) {
	for _, s := range []*Schedule{NewSchedule(1, 0, long), NewSchedule(1, mean, 0)} {
		at := time.Duration(rand.Int64N(int64(time.Hour)))
		if got := s.Finish(at, msec); got != at+msec || s.Begun(0, at) != 0 {
			t.Errorf("done at %v, begun %d, want %v and 0", got, s.Begun(0, at), at+msec)
		}
	}
}

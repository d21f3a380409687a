package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// standing is a sample whose load took a second and had a request every ms, each of
// which took as many µs as its number, but for stops.
func standing(open bool, stops ...steal.Stop) Sample {
	r := &Result{Requests: 1000, Seconds: 1, Latency: Latency{1, 2, 3, 4}}
	if open {
		r.open = &load.Result{}
		for i := range 1000 {
			r.open.Samples = append(r.open.Samples, load.Sample{Due: at(i), Latency: time.Duration(i+1) * time.Microsecond})
		}
	}
	s := Sample{Figures: Figures{}}
	s.Figures.latency(r.Latency)
	s.tell(r, stops, at(0), at(1000))
	return s
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func stop(from, to int) steal.Stop { return steal.Stop{From: at(from), To: at(to)} }

func TestLatenciesAreThoseOfUndisturbedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		open               bool
		stops              []steal.Stop
		stopped, disturbed float64
		max                float64 // µs; 0: none
	}{
		"nothing stood still":                 {true, nil, 0, 0, 1000},
		"the last requests were disturbed":    {true, []steal.Stop{stop(905, 1000)}, 9.5, 10, 900},
		"most were":                           {true, []steal.Stop{stop(305, 900)}, 59.5, 70, 0},
		"a closed loop can't be told apart":   {false, []steal.Stop{stop(100, 400)}, 30, 0, 4},
		"what was before and after is naught": {true, []steal.Stop{stop(-500, -400), stop(1500, 1600)}, 0, 0, 1000},
	} {
		s := standing(c.open, c.stops...)
		if s.Figures[Stopped] != c.stopped || s.Figures[Disturbed] != c.disturbed || int(s.Figures[Max]) != int(c.max) {
			t.Errorf("%s: %v", name, s.Figures)
		}
		if _, known := s.Figures[P99]; known != (c.max != 0) {
			t.Errorf("%s: %v", name, s.Figures)
		}
		if _, told := s.Figures[Disturbed]; told != c.open || (s.All != nil) != c.open || c.open && *s.All != (Latency{1, 2, 3, 4}) {
			t.Errorf("%s: %v, %+v of all", name, s.Figures, s.All)
		}
	}
}

// What stood still all the time did so for 100% of it, however long that was: of two
// such loads neither is the calmer one.
func TestAWholeLoadThatStoodStill(t *testing.T) {
	for ns := time.Duration(1); ns < 10_000; ns++ {
		s := Sample{Figures: Figures{}}
		s.tell(&Result{}, []steal.Stop{stop(-1, 1)}, began, began.Add(ns))
		if s.Figures[Stopped] != 100 {
			t.Fatalf("%v: %v%%", ns, s.Figures[Stopped])
		}
	}
}

// A load is measured again while the processors stand still, as often as was asked
// for, and the calmest counts.
func TestALoadThatWasDisturbedIsRepeated(t *testing.T) {
	type attempt struct {
		stopped  time.Duration // of a minute around the load
		requests int64
	}
	const all, none = 2 * time.Minute, 0
	for name, c := range map[string]struct {
		attempts []attempt
		most     int
		repeats  int
		requests int64 // of the one that counts
	}{
		"calm":                 {[]attempt{{none, 7}}, 2, 0, 7},
		"calm the second time": {[]attempt{{all, 7}, {none, 8}}, 2, 1, 8},
		"never calm":           {[]attempt{{all, 7}, {all, 8}, {all, 9}}, 2, 2, 7},
		"not to be repeated":   {[]attempt{{all, 7}}, 0, 0, 7},
		"no answer":            {[]attempt{{all, 0}}, 2, 0, 0},
		"no more answer":       {[]attempt{{all, 7}, {all, 0}}, 2, 1, 0},
	} {
		n := 0
		l := Load{"fish", func(context.Context, Tools, string) (*Result, error) {
			n++
			return &Result{Requests: c.attempts[n-1].requests, Errors: 1, Seconds: 1}, nil
		}, 0}
		var told []string
		o := Options{Repeats: c.most, Progress: func(line string) { told = append(told, line) }}
		o.watch = func(time.Duration) (func() ([]steal.Stop, error), error) {
			begun := time.Now()
			return func() ([]steal.Stop, error) {
				half := c.attempts[n-1].stopped / 2
				return []steal.Stop{{From: begun.Add(-half), To: begun.Add(half)}}, nil
			}, nil
		}
		s, err := o.measureLoad(t.Context(), &Stack{}, l)
		if err != nil || n != len(c.attempts) || s.Repeats != c.repeats || len(told) != c.repeats || s.Requests != c.requests {
			t.Errorf("%s: %d attempts, %+v, %v, told %q", name, n, s, err, told)
		}
		if failed := int64(n); c.attempts[n-1].requests > 0 && s.Errors != failed {
			t.Errorf("%s: %d requests failed, %d are told", name, failed, s.Errors)
		}
	}
}

// Whether a watch can't begin or fails at its end, or the load does, is told; without
// a watch nothing is known of stops.
func TestDuring(t *testing.T) {
	broken := errors.New("broken")
	well := func() ([]steal.Stop, error) { return []steal.Stop{{}}, nil }
	for name, c := range map[string]struct {
		w     watch
		do    error
		done  bool
		fails bool
		stops int
	}{
		"well":     {func(time.Duration) (func() ([]steal.Stop, error), error) { return well, nil }, nil, true, false, 1},
		"no watch": {nil, nil, true, false, 0},
		"no begin": {func(time.Duration) (func() ([]steal.Stop, error), error) { return nil, broken }, nil, false, true, 0},
		"a bad end": {func(time.Duration) (func() ([]steal.Stop, error), error) {
			return func() ([]steal.Stop, error) { return nil, broken }, nil
		}, nil, true, true, 0},
		"a bad load": {func(time.Duration) (func() ([]steal.Stop, error), error) { return well, nil }, broken, true, true, 1},
	} {
		done := false
		stops, err := c.w.during(0, func() error { done = true; return c.do })
		if done != c.done || errors.Is(err, broken) != c.fails || len(stops) != c.stops {
			t.Errorf("%s: done %v, %d stops, %v", name, done, len(stops), err)
		}
	}
	s, err := (&Options{}).measureLoad(t.Context(), &Stack{}, Load{"fish", func(context.Context, Tools, string) (*Result, error) {
		return &Result{Requests: 1, Seconds: 1}, nil
	}, 0})
	if _, known := s.Figures[Stopped]; err != nil || known {
		t.Errorf("nobody watched: %+v, %v", s, err)
	}
}

// Where processors can't be watched, the report says why, and nothing is watched.
func TestAWatchThatIsNotPossible(t *testing.T) {
	for _, lab := range []string{"/bin/false", "/no/such/program"} {
		r, o := &Report{}, &Options{Tools: Tools{Lab: lab}}
		if r.watch(o); r.Unwatched == "" || o.watch != nil {
			t.Errorf("%s: %q", lab, r.Unwatched)
		}
	}
}

func TestLost(t *testing.T) {
	s := testReport().Samples
	for load, want := range map[string]int{at64: 0, atSlow: 1} {
		if n := s.lost("haproxy-2", load); n != want {
			t.Errorf("%s: %d", load, n)
		}
	}
	if n := s.repeats(); n != 2 {
		t.Errorf("%d repeats", n)
	}
	if v := s.Values("haproxy-2", atSlow, P99); !slices.Equal(v, []float64{600}) {
		t.Errorf("p99 %v", v)
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/remora-proxy/remora/lab/steal"
)

// What stops of a processor are taken for, in percent. They decide before any latency
// is looked at, so that none is chosen for being good.
const (
	tooRestless  = 2  // of a load's time: it is measured again, and a verdict says so
	tooDisturbed = 50 // of an open loop's requests: the latencies of the rest are none
)

// A watch begins to look for moments in which a processor stands still. The end that
// it returns is called once, and returns what was seen since. nil: it is not possible.
type watch func(period time.Duration) (end func() ([]steal.Stop, error), err error)

// watchWith watches with a process of the lab, begun for each load: it wakes often,
// and is not to be awake when nothing is measured.
func watchWith(lab string) watch {
	return func(period time.Duration) (func() ([]steal.Stop, error), error) {
		w, err := steal.Start(lab, "steal", "--period", period.String())
		if err != nil {
			return nil, err
		}
		return w.Stop, nil
	}
}

// during watches while do is done.
func (w watch) during(period time.Duration, do func() error) (stops []steal.Stop, err error) {
	if w == nil {
		return nil, do()
	}
	end, err := w(period)
	if err != nil {
		return nil, err
	}
	err = do()
	stops, failed := end()
	return stops, errors.Join(err, failed)
}

// tell adds to a sample how disturbed it was between two times, and if requests can be
// told apart has their latencies be those of the undisturbed.
func (s *Sample) tell(r *Result, stops []steal.Stop, from, to time.Time) {
	s.Figures[Stopped] = percent(float64(steal.Total(stops, from, to)), float64(to.Sub(from)))
	if r.open == nil || len(r.open.Samples) == 0 {
		return
	}
	all := r.Latency
	s.All = &all
	r.open.Stops = stops
	calm := r.open.Undisturbed()
	requests := float64(len(r.open.Samples))
	s.Figures[Disturbed] = percent(requests-float64(calm.TotalCount()), requests)
	for _, f := range latencies {
		delete(s.Figures, f)
	}
	if !s.disturbed() {
		s.Figures.latency(latencyOf(calm))
	}
}

func percent(part, whole float64) float64 { return 100 * part / whole }

// disturbed tells whether too few requests were undisturbed for a latency.
func (s *Sample) disturbed() bool { return s.Figures[Disturbed] > tooDisturbed }

// measureLoad puts a row under a load, and again while processors stood still for too
// much of it. Of these samples it returns the one with the least of that. Requests
// that failed in the others count as well; a load without an answer is not repeated.
func (o *Options) measureLoad(ctx context.Context, s *Stack, l Load) (Sample, error) {
	best, err := l.run(ctx, s, o.watch)
	for n := 1; err == nil && best.Figures[Stopped] > tooRestless && n <= o.Repeats; n++ {
		o.Progress(fmt.Sprintf("%s: %s: processors stood still for %.1f%% of the time: again", s.row.Name, l.Name, best.Figures[Stopped]))
		var next Sample
		if next, err = l.run(ctx, s, o.watch); err != nil {
			break
		}
		failed := best.Errors + next.Errors
		if next.Figures[Stopped] < best.Figures[Stopped] { // a load without an answer has none
			best = next
		}
		best.Errors, best.Repeats = failed, n
	}
	return best, err
}

// repeats is how often a load was repeated, in all.
func (s Samples) repeats() (sum int) {
	for _, sample := range s {
		sum += sample.Repeats
	}
	return sum
}

// lost is how many samples of a row have no latencies because they were disturbed.
func (s Samples) lost(row, load string) (n int) {
	for _, sample := range s {
		if sample.Row == row && sample.Load == load && sample.disturbed() {
			n++
		}
	}
	return n
}

// restless tells whether a figure of some row can't be trusted, as processors stood
// still for too much of its median round. Latencies that were told apart can be.
func (s Samples) restless(load string, f Figure, rows ...string) bool {
	for _, row := range rows {
		if len(s.Values(row, load, Disturbed)) > 0 && f.ofLatency() {
			continue
		}
		if m, known := medianOf(s.Values(row, load, Stopped)); known && m > tooRestless {
			return true
		}
	}
	return false
}

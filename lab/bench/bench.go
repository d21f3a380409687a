// Package bench measures what the sidecar costs beside other proxies: the same load in
// turn, round after round, since the figures of two runs can't be compared.
//
// A Row is started as a Stack of processes; a Load is run against it and makes a
// Sample; a Report compares the samples of all rows, as text, Markdown, HTML and JSON.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/remora-proxy/remora/lab/steal"
)

// Options say what is compared.
type Options struct {
	Tools  Tools
	Rows   []Row
	Rounds int
	Loads  []Load
	Rest   Rest // of one proxy of each kind; no connections: not measured

	// Repeats is how often at most a load is measured again because processors stood
	// still, in each round.
	Repeats int

	// Progress is called with a line of text before each row, and when something
	// is repeated or fails.
	Progress func(string)

	watch watch // set by Run
}

// warmUp comes before the loads of a row, and is not counted.
var warmUp = Closed(64, time.Second)

// Run measures all rows whose programs are there. A row that fails has no figures of
// that round; the report names it, and whether that is an error is for its Check to
// tell. Whatever was started has ended when Run returns, also when it failed, as it
// does without a replica, or ctx ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Report{Began: time.Now(), Rounds: o.Rounds, Tools: o.Tools, Machine: describeMachine(ctx, o.Tools)}
	for _, l := range o.Loads {
		r.Loads = append(r.Loads, l.Name)
	}
	rows := r.present(o)
	var err error
	if o.Rest.Connections, err = raiseDescriptors(o.Rest.Connections); err != nil {
		return nil, err
	}
	r.Rest = o.Rest
	r.watch(&o)
	for round := 1; round <= o.Rounds; round++ {
		// Turned round every second time, so that a machine that changes its mood
		// favours no row.
		order := slices.Clone(rows)
		if round%2 == 0 {
			slices.Reverse(order)
		}
		for _, row := range order {
			o.Progress(fmt.Sprintf("round %d of %d: %s", round, o.Rounds, row.Name))
			samples, err := o.measure(ctx, row)
			if ctx.Err() != nil || errors.Is(err, errReplica) {
				return nil, cmp.Or(err, ctx.Err())
			}
			if err != nil {
				o.Progress(err.Error())
				r.Failures = append(r.Failures, Failure{round, row.Name, err.Error()})
				continue
			}
			for _, s := range samples {
				s.Round = round
				r.Samples = append(r.Samples, s)
			}
		}
	}
	r.Samples.addLatency()
	r.Machine.after()
	return r, nil
}

func (o *Options) validate() error {
	if o.Rounds < 1 || len(o.Loads) == 0 {
		return errors.New("bench: want a round and a load at least")
	}
	if o.Repeats < 0 {
		return errors.New("bench: want no less than 0 repeats")
	}
	if o.Rest.Connections < 0 || o.Rest.Connections > 0 && o.Rest.Duration <= 0 {
		return errors.New("bench: want no less than 0 idle connections, and a rest that takes time")
	}
	var names []string
	for _, l := range o.Loads {
		names = append(names, l.Name)
	}
	return apart(names)
}

// apart refuses two loads of one name: a table would mix their samples.
func apart(loads []string) error {
	for i, name := range loads {
		if slices.Contains(loads[:i], name) {
			return fmt.Errorf("bench: the load %q is asked for twice", name)
		}
	}
	return nil
}

// watch has the loads watched, if that is possible.
func (r *Report) watch(o *Options) {
	o.watch = watchWith(o.Tools[Lab])
	if _, err := o.watch.during(steal.Period, func() error { return nil }); err != nil {
		o.watch, r.Unwatched = nil, err.Error()
	}
	r.Repeats = o.Repeats
}

// present are the rows that can be measured; what is missing is noted.
func (r *Report) present(o Options) (rows []Row) {
	r.Missing = map[Program]string{}
	for _, row := range o.Rows {
		missing := row.missing(o.Tools)
		for _, p := range missing {
			r.Missing[p] = hints[p]
		}
		if len(missing) == 0 {
			rows = append(rows, row)
			r.Rows = append(r.Rows, row.Name)
		}
	}
	if o.Tools[Wrk] == "" {
		r.Missing[Wrk] = hints[Wrk]
	}
	return rows
}

// measure makes the samples of a row: at rest in a stack of its own, for what was
// under load keeps memory.
func (o *Options) measure(ctx context.Context, row Row) (samples []Sample, err error) {
	if o.Rest.Connections > 0 && row.rest {
		err = with(ctx, o.Tools, row, func(s *Stack) error {
			sample, err := o.measureRest(ctx, s)
			samples = append(samples, sample)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = with(ctx, o.Tools, row, func(s *Stack) error {
		loaded, err := o.measureLoads(ctx, s)
		samples = append(samples, loaded...)
		return err
	})
	return samples, err
}

// with starts a row for what do does with it. A process that ended meanwhile is the
// first to be told, for it is why other things failed.
func with(ctx context.Context, t Tools, row Row, do func(*Stack) error) error {
	s, err := Start(ctx, t, row)
	if err != nil {
		return err
	}
	defer s.Stop()
	err = do(s)
	if err = errors.Join(s.Check(), err); err != nil {
		return fmt.Errorf("bench: row %s: %w", row.Name, err)
	}
	return nil
}

func (o *Options) measureLoads(ctx context.Context, s *Stack) (samples []Sample, err error) {
	if _, err := warmUp.send(ctx, o.Tools, s.URL); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	for _, l := range o.Loads {
		sample, err := o.measureLoad(ctx, s, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		samples = append(samples, sample)
	}
	return samples, s.observed()
}

func (o *Options) measureRest(ctx context.Context, s *Stack) (Sample, error) {
	sample, err := o.Rest.Run(ctx, s)
	if err != nil || !s.row.sidecars() {
		return sample, err
	}
	waiting, err := waitingRSS(ctx, o.Tools)
	sample.Figures[OwnRSS] = sample.Figures[RestRSS] - mebibytes(waiting)
	return sample, err
}

// Package bench measures what the sidecar costs beside other proxies. All get the same load, one
// after the other, round after round: figures of two runs can't be compared. A Row is started as
// a Stack of processes. A Load is run against it and makes a Sample. A Report compares samples.
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
	Tools    Tools
	Rows     []Row
	Rounds   int
	Loads    []Load
	Rest     Rest         // of one proxy of each kind
	Watch    bool         // processors are watched for moments in which they stand still
	Kind     Kind         // of the rows
	Seed     uint64       // of the replicas, which also depend on the round
	Progress func(string) // gets a line of text before each row, and after a failure
}

// Kind is what a comparison is about.
type Kind string

const (
	Costs        Kind = ""         // of Rows
	Tail         Kind = "tail"     // of TailRows
	Dubbo        Kind = "dubbo"    // of DubboRows
	HTTPS        Kind = "https"    // of HTTPSRows
	GRPC         Kind = "grpc"     // of GRPCRows
	LongMessages Kind = "messages" // of gRPC, of MessageRows
	Work         Kind = "work"     // of WorkRows
	TLS          Kind = "tls"      // handshakes, of HandshakeRows
	Mesh         Kind = "mesh"     // of MeshRows
	Scale        Kind = "scale"    // of ScaleRows

	RealMatrix Kind = "matrix"   // of MatrixRows, see Matrix
	Frontiers  Kind = "frontier" // of FrontierRows, see Frontier
)

// warmUp comes before the loads of a row, and is not counted.
func (r Row) warmUp() Load {
	if r.grpc {
		return Streams(64, time.Second)
	}
	return Closed(64, time.Second)
}

// Run measures all rows whose programs are there. The report names a row that fails in a round.
// Run returns an error without a replica, and at the end of ctx. It leaves no process.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var err error
	asked := o.Rest.Connections
	if o.Rest.Connections, err = raiseDescriptors(asked); err != nil {
		return nil, err
	}
	if o.Rest.Connections < asked {
		o.Rest.Asked = asked
	}
	r := &Report{
		Began: time.Now(), Rounds: o.Rounds, Tools: o.Tools, Machine: describeMachine(ctx, o.Tools),
		Rest: o.Rest, Kind: o.Kind, Cores: map[string]string{}, GRPC: slices.ContainsFunc(o.Rows, func(r Row) bool { return r.grpc }),
	}
	for _, row := range o.Rows {
		c, err := row.divided()
		if err != nil {
			return nil, err
		}
		if row.cores > 0 {
			r.Cores[row.Name], r.MostCores = c.String(), max(r.MostCores, row.cores)
		}
	}
	for _, l := range o.Loads {
		r.Loads = append(r.Loads, l.Name)
	}
	o.Rows = o.measured()
	rows := r.present(o)
	r.mayWatch(&o)
	for round := 1; round <= o.Rounds; round++ {
		for _, row := range rows {
			o.Progress(fmt.Sprintf("round %d of %d: %s", round, o.Rounds, row.Name))
			samples, err := o.measure(ctx, row, round)
			if ctx.Err() != nil || errors.Is(err, errReplica) {
				return nil, fmt.Errorf("bench: row %s: %w", row.Name, cmp.Or(err, ctx.Err()))
			}
			if err != nil {
				o.Progress(row.Name + ": " + err.Error())
				r.Failures = append(r.Failures, Failure{round, row.Name, err.Error()})
				continue
			}
			r.Samples = append(r.Samples, samples...)
		}
		// Every second round is in reverse, so that a change of the machine favours no row.
		slices.Reverse(rows)
	}
	r.Samples.addLatency()
	r.Machine.Load[1] = loadAverage()
	r.Machine.Tracked = tracked("/proc/sys/net/netfilter/nf_conntrack_count")
	return r, nil
}

func (o *Options) validate() error {
	if o.Rounds < 1 || len(o.Loads) == 0 && o.Rest.Connections == 0 {
		return errors.New("bench: want at least one round, and one load or idle connections")
	}
	if o.Rest.Connections < 0 || o.Rest.Connections > 0 && o.Rest.Duration <= 0 {
		return errors.New("bench: want no negative number of idle connections, and a rest longer than 0")
	}
	for i, l := range o.Loads { // a table would mix the samples of two loads of one name
		if slices.ContainsFunc(o.Loads[:i], func(other Load) bool { return other.Name == l.Name }) {
			return fmt.Errorf("bench: the load %q is there twice", l.Name)
		}
	}
	return nil
}

// watched runs do, and returns when processors stood still meanwhile.
func (o *Options) watched(period time.Duration, do func() error) ([]steal.Stop, error) {
	if !o.Watch {
		return nil, do()
	}
	// A watcher of its own for each load: it wakes often, and must not when nothing is measured.
	return steal.Watch(do, o.Tools[Lab], "steal", "--period", period.String())
}

// mayWatch turns o.Watch off where processors can't be watched, and notes why.
func (r *Report) mayWatch(o *Options) {
	if !o.Watch {
		r.Unwatched = "not asked for"
	} else if _, err := o.watched(steal.Period, func() error { return nil }); err != nil {
		o.Watch, r.Unwatched = false, err.Error()
	}
}

// present returns the rows whose programs were found, and notes the others.
func (r *Report) present(o Options) (rows []Row) {
	r.Missing = map[Program]string{}
	for _, row := range o.Rows {
		found := true
		for _, p := range row.programs() {
			if o.Tools[p] == "" {
				r.Missing[p], found = programs[p].hint, false
			}
		}
		if found {
			rows = append(rows, row)
			r.Rows = append(r.Rows, row.Name)
		}
	}
	if o.Tools[Wrk] == "" && !slices.Contains([]Kind{Tail, RealMatrix, Frontiers, GRPC, LongMessages}, o.Kind) {
		r.Missing[Wrk] = programs[Wrk].hint
	}
	return rows
}

// loads returns the loads that a row is measured under.
func (o *Options) loads(row Row) []Load {
	return slices.DeleteFunc(slices.Clone(o.Loads), func(l Load) bool {
		return l.job != "" && row.jobs != nil && !slices.Contains(row.jobs, l.job)
	})
}

// resting reports whether a row is measured at rest.
func (o *Options) resting(row Row) bool { return row.rest && o.Rest.Connections > 0 }

// measured returns the rows that have something to measure.
func (o *Options) measured() []Row {
	return slices.DeleteFunc(slices.Clone(o.Rows), func(row Row) bool { return !o.resting(row) && len(o.loads(row)) == 0 })
}

// measure makes the samples of a row. It uses a stack of its own at rest: processes keep
// memory after a load.
func (o *Options) measure(ctx context.Context, row Row, round int) (samples Samples, err error) {
	add := func(sample Sample, err error) error {
		sample.Round = round
		samples = append(samples, sample)
		return err
	}
	if o.resting(row) {
		resting := row
		resting.idle = o.Rest.Connections
		err = o.with(ctx, resting, round, func(s *Stack) error { return add(o.Rest.run(ctx, s)) })
		if err != nil {
			return nil, err
		}
	}
	loads := o.loads(row)
	if len(loads) == 0 {
		return samples, nil
	}
	err = o.with(ctx, row, round, func(s *Stack) error {
		if loads[0].prepare == nil {
			if _, err := row.warmUp().send(ctx, s); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
		}
		for _, l := range loads {
			if err := add(l.run(ctx, s, o)); err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
		}
		return s.observer.check(ctx)
	})
	return samples, err
}

// with starts a row for do. The end of a process comes first in the error: it explains the rest.
func (o *Options) with(ctx context.Context, row Row, round int, do func(*Stack) error) error {
	s, err := Start(ctx, o.Tools, row, 100*(o.Seed+uint64(round)))
	if err != nil {
		return err
	}
	defer s.Stop()
	err = do(s)
	return errors.Join(s.procs.Check(), err)
}

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// mesh is the replicas and sidecars that some phases share.
type mesh struct {
	opts     Options
	layout   *layout
	procs    *child.Group
	replicas []*child.Process
	sidecars []*child.Process
}

// phase is a running phase, and what it has measured so far.
type phase struct {
	*mesh
	kind   phaseKind
	before state // at the end of the warm-up
	result load.Result
	served int64
	stalls int64
}

// sliceLength is roughly the length of a turn of phases that share a mesh.
const sliceLength = 2500 * time.Millisecond

// runPhases measures the kinds on one mesh, in turns: all meet the same freezes and machine state.
func runPhases(ctx context.Context, o Options, l *layout, kinds ...phaseKind) error {
	m := &mesh{opts: o, layout: l, procs: &child.Group{Dir: o.Dir}}
	defer m.procs.Stop()
	var phases []*phase
	for _, kind := range kinds {
		o.Out.Line(kind.title)
		phases = append(phases, &phase{mesh: m, kind: kind})
	}
	o.Out.Live("starting")
	if err := m.start(ctx, kinds); err != nil {
		return err
	}
	for _, p := range phases {
		if err := p.warmUp(ctx); err != nil {
			return err
		}
	}
	turn, turns := time.Duration(o.Seconds*float64(time.Second)), time.Duration(1)
	if len(phases) > 1 {
		turns = max(1, turn/sliceLength)
		turn /= turns
	}
	for i := range turns {
		for _, p := range phases {
			if err := p.measure(ctx, i*turn, turn); err != nil {
				return err
			}
		}
	}
	for _, p := range phases {
		after, err := p.state(ctx)
		if err != nil {
			return err
		}
		r := p.summarize(after)
		o.Out.Line(fmt.Sprintf("  %d requests, %d errors, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms",
			r.Requests, r.Errors, r.P50, r.P99, r.P999))
		*p.kind.figures = r
	}
	return m.procs.Check()
}

// warmUp is a separate load. It leaves nothing in flight, so that all counts start at 0.
func (p *phase) warmUp(ctx context.Context) error {
	_, stats, err := p.load(ctx, "warm-up", 0, p.opts.Warmup, p.opts.Warmup)
	if err != nil {
		return err
	}
	for _, s := range stats {
		if s.Served == 0 {
			return fmt.Errorf("demo: replica %s got none of the warm-up's requests", s.Name)
		}
	}
	p.before, err = p.state(ctx)
	return err
}

// measure runs the part of the phase that begins at the offset from, for d. Each phase meets
// the same freezes in that part.
func (p *phase) measure(ctx context.Context, from, d time.Duration) error {
	res, stats, err := p.load(ctx, "measuring "+p.kind.hedge, from, d, time.Duration(p.opts.Seconds*float64(time.Second)))
	if err != nil {
		return err
	}
	p.result.Add(res)
	for _, s := range stats {
		p.served += s.Served
		p.stalls += s.Stalls
	}
	return nil
}

// startReplicas starts the replicas, with more arguments.
func (m *mesh) startReplicas(ctx context.Context, args ...string) error {
	o := m.opts
	for i, addr := range m.layout.replicas {
		seed := o.Seed + uint64(i)
		if o.Mode == replica.Correlated {
			seed = o.Seed // shared, so that the freezes are shared
		}
		proc, err := m.procs.StartServer(ctx, child.Gets("http://"+addr+"/healthz"), nil,
			fmt.Sprintf("replica-%d", i+1), o.Self, slices.Concat([]string{"replica",
				"--listen", addr, "--name", fmt.Sprintf("compute-%d", i+1),
				"--mode", string(o.Mode), "--seed", strconv.FormatUint(seed, 10)}, args)...)
		if err != nil {
			return err
		}
		m.replicas = append(m.replicas, proc)
	}
	return nil
}

func (m *mesh) startProviders(ctx context.Context) error {
	for i, admin := range m.layout.providerAdmin {
		name := fmt.Sprintf("provider-%d", i+1)
		if err := m.sidecar(ctx, name, m.layout.providerFile(i), admin); err != nil {
			return err
		}
	}
	return nil
}

// start starts the replicas and the sidecars that the kinds need.
func (m *mesh) start(ctx context.Context, kinds []phaseKind) error {
	l := m.layout
	if err := m.startReplicas(ctx); err != nil || kinds[0].hedge == "" {
		return err
	}
	if err := m.startProviders(ctx); err != nil {
		return err
	}
	for _, kind := range kinds {
		err := m.sidecar(ctx, "consumer-hedging-"+kind.hedge, l.consumerFile(kind.hedge), l.consumers[kind.hedge].admin)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mesh) sidecar(ctx context.Context, name, file, admin string) error {
	ready := child.Gets("http://" + admin + "/readyz")
	p, err := m.procs.StartServer(ctx, ready, nil, name, m.opts.Remora, "run", "-c", file)
	if err == nil {
		m.sidecars = append(m.sidecars, p)
	}
	return err
}

// targets are those of load.Options.
func (p *phase) targets() (all []string) {
	addrs := p.layout.replicas[:]
	if p.kind.hedge != "" {
		addrs = []string{p.layout.consumers[p.kind.hedge].listen}
	}
	for _, addr := range addrs {
		if p.layout.grpc {
			all = append(all, "grpc://"+addr)
		} else {
			all = append(all, "http://"+addr+"/compute")
		}
	}
	return all
}

// load resets the replicas, sends requests for d, the part of total that begins at from, and
// returns the replicas' counts once they are idle.
func (p *phase) load(ctx context.Context, what string, from, d, total time.Duration) (*load.Result, []replica.Stats, error) {
	if err := p.reset(ctx, from); err != nil {
		return nil, nil, err
	}
	res, err := load.Run(ctx, load.Options{
		Targets: p.targets(), Rate: p.opts.Rate, Seed: p.opts.Seed, Duration: d, Timeout: p.opts.Timeout,
		Progress: func(s load.Progress) {
			p.opts.Out.Live(fmt.Sprintf("%s %4.1f of %.1f s  %6d requests  %d errors  p50 %.2f ms  p99 %.2f ms  max %.1f ms",
				what, (from + min(max(s.Elapsed, 0), d)).Seconds(), total.Seconds(), s.Requests, s.Errors, ms(s.P50), ms(s.P99), ms(s.Max)))
		},
	})
	if err != nil {
		return nil, nil, errors.Join(err, p.procs.Check())
	}
	stats, err := p.idle(ctx)
	return res, stats, err
}

// idle waits until no replica has a request in flight, and returns the counts of each.
func (m *mesh) idle(ctx context.Context) (all []replica.Stats, err error) {
	for i, addr := range m.layout.replicas {
		stats, err := replica.AwaitIdle(ctx, m.replicas[i], addr)
		if err != nil {
			return nil, err
		}
		all = append(all, stats)
	}
	return all, nil
}

// reset sets the replicas' counts to 0, and puts them at the offset from of their schedules.
func (m *mesh) reset(ctx context.Context, from time.Duration) error {
	epoch := time.Now().Add(-from)
	for _, addr := range m.layout.replicas {
		if err := replica.Reset(ctx, addr, epoch); err != nil {
			return err
		}
	}
	return nil
}

// state has the counts of the consumer sidecar since its start.
type state struct {
	hedging   hedgingState
	durations durations
}

// state asks the consumer sidecar. It is empty without sidecars.
func (p *phase) state(ctx context.Context) (s state, err error) {
	if p.kind.hedge == "" {
		return state{}, nil
	}
	admin := "http://" + p.layout.consumers[p.kind.hedge].admin
	hedging, err := child.Call(ctx, http.MethodGet, admin+"/hedging")
	if err != nil {
		return state{}, err
	}
	metrics, err := child.Call(ctx, http.MethodGet, admin+"/metrics")
	if err != nil {
		return state{}, err
	}
	if s.hedging, err = parseHedging(hedging, p.kind.hedge); err == nil {
		s.durations, err = parseDurations(metrics)
	}
	return s, err
}

// hedgingState is a service's part of the response to GET /hedging.
type hedgingState struct {
	Mode   string           `json:"mode"`
	Hedges int64            `json:"hedges"`
	Won    int64            `json:"won"`
	Gates  map[string]int64 `json:"gates"`
	Routes []struct {
		Shadow []report.Forecast `json:"shadow"`
	} `json:"routes"`
}

func parseHedging(b []byte, mode string) (hedgingState, error) {
	var all struct {
		Services map[string]hedgingState `json:"services"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return hedgingState{}, fmt.Errorf("demo: GET /hedging: %w", err)
	}
	s, ok := all.Services["compute"]
	if !ok || s.Mode != mode {
		return hedgingState{}, fmt.Errorf("demo: GET /hedging: want service compute with mode %q: %s", mode, b)
	}
	return s, nil
}

func (p *phase) summarize(end state) *report.Phase {
	res, before, after := &p.result, p.before.hedging, end.hedging
	out := &report.Phase{
		Requests: res.Counts.Requests, Errors: res.Counts.Failed(),
		P50: ms(res.Quantile(.5)), P90: ms(res.Quantile(.9)), P99: ms(res.Quantile(.99)),
		P999: ms(res.Quantile(.999)), Max: ms(res.Max()),
		Hedges: after.Hedges - before.Hedges, HedgesWon: after.Won - before.Won,
		Gates:      map[string]int64{},
		Stalls:     p.stalls,
		Seen:       end.durations.since(p.before.durations).seen(),
		MaxSendLag: ms(time.Duration(res.Lag.Max())),
		Curve:      load.Curve(res.Latency),
	}
	if out.Requests > 0 {
		out.ExtraLoad = float64(p.served-out.Requests) / float64(out.Requests)
	}
	for gate, n := range after.Gates {
		if n -= before.Gates[gate]; n > 0 {
			out.Gates[gate] = n
		}
	}
	for _, r := range after.Routes {
		out.Forecasts = append(out.Forecasts, r.Shadow...)
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

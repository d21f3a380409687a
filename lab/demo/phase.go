package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// A phase is one under way.
type phase struct {
	opts   Options
	layout *layout
	kind   phaseKind
	procs  *group
}

func runPhase(ctx context.Context, o Options, l *layout, kind phaseKind) (*report.Phase, error) {
	o.Out.Line(kind.title)
	p := &phase{opts: o, layout: l, kind: kind, procs: &group{dir: o.Dir}}
	defer p.procs.stop()
	o.Out.Live("starting")
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	// The warm-up is a load of its own. Between it and the measurement nothing is
	// in flight, so that requests, calls served and hedges of the measurement
	// are all counted from 0, and it meets the same freezes in each phase.
	if _, err := p.load(ctx, "warm-up", o.Warmup); err != nil {
		return nil, err
	}
	warm, err := p.idle(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range warm {
		if s.Served == 0 {
			return nil, fmt.Errorf("demo: replica %s got none of the warm-up's requests", s.Name)
		}
	}
	if err := p.reset(ctx); err != nil {
		return nil, err
	}
	before, err := p.hedging(ctx)
	if err != nil {
		return nil, err
	}
	res, err := p.load(ctx, "measuring", time.Duration(o.Seconds*float64(time.Second)))
	if err != nil {
		return nil, err
	}
	stats, err := p.idle(ctx)
	if err != nil {
		return nil, err
	}
	after, err := p.hedging(ctx)
	if err != nil {
		return nil, err
	}
	out := summarize(res, stats, before, after)
	o.Out.Line(fmt.Sprintf("  %d requests, %d errors, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms",
		out.Requests, out.Errors, out.P50, out.P99, out.P999))
	return out, p.procs.check()
}

// start starts the replicas, and unless the phase is direct the sidecars, and
// returns once all are ready.
func (p *phase) start(ctx context.Context) error {
	l, o := p.layout, p.opts
	for i, addr := range l.replicas {
		seed := o.Seed + uint64(i)
		if o.Mode == replica.Correlated {
			seed = o.Seed // shared, so that the freezes are
		}
		proc, err := p.procs.start(fmt.Sprintf("replica-%d", i+1), o.Self, "replica",
			"--listen", addr, "--name", fmt.Sprintf("compute-%d", i+1),
			"--mode", string(o.Mode), "--seed", strconv.FormatUint(seed, 10))
		if err != nil {
			return err
		}
		if err := await(ctx, proc, proc.name, gets("http://"+addr+"/healthz")); err != nil {
			return err
		}
	}
	if p.kind.hedge == "" {
		return nil
	}
	for i, admin := range l.providerAdmin {
		name := fmt.Sprintf("provider-%d", i+1)
		if err := p.sidecar(ctx, name, l.providerFile(i), admin); err != nil {
			return err
		}
	}
	return p.sidecar(ctx, "consumer-hedging-"+p.kind.hedge, l.consumerFile(p.kind.hedge), l.consumerAdmin)
}

func (p *phase) sidecar(ctx context.Context, name, file, admin string) error {
	proc, err := p.procs.start(name, p.opts.Remora, "run", "-c", file)
	if err != nil {
		return err
	}
	return await(ctx, proc, name, gets("http://"+admin+"/readyz"))
}

// targets are where the load goes.
func (p *phase) targets() []string {
	if p.kind.hedge != "" {
		return []string{"http://" + p.layout.consumer + "/compute"}
	}
	var urls []string
	for _, addr := range p.layout.replicas {
		urls = append(urls, "http://"+addr+"/compute")
	}
	return urls
}

func (p *phase) load(ctx context.Context, what string, d time.Duration) (*load.Result, error) {
	total := d.Seconds()
	res, err := load.Run(ctx, load.Options{
		Targets: p.targets(), Rate: p.opts.Rate, Seed: p.opts.Seed, Duration: d, Timeout: p.opts.Timeout,
		Progress: func(s load.Progress) {
			p.opts.Out.Live(fmt.Sprintf("%s %4.1f of %.1f s  %6d requests  %d errors  p50 %.2f ms  p99 %.2f ms  max %.1f ms",
				what, min(max(s.Elapsed.Seconds(), 0), total), total, s.Requests, s.Errors, ms(s.P50), ms(s.P99), ms(s.Max)))
		},
	})
	if err != nil {
		return nil, errors.Join(err, p.procs.check())
	}
	return res, nil
}

// idle waits until no replica has a call in flight (losers of hedges outlive
// their request), and returns what each has counted.
func (p *phase) idle(ctx context.Context) ([]replica.Stats, error) {
	stats := make([]replica.Stats, len(p.layout.replicas))
	for i, addr := range p.layout.replicas {
		proc := p.procs.procs[i]
		err := await(ctx, proc, proc.name+" to be idle", func(ctx context.Context) error {
			b, err := call(ctx, http.MethodGet, "http://"+addr+"/stats")
			if err != nil {
				return err
			}
			if err := json.Unmarshal(b, &stats[i]); err != nil {
				return err
			}
			if stats[i].InFlight != 0 {
				return fmt.Errorf("%d calls in flight", stats[i].InFlight)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// reset starts the replicas' freezes anew, at one moment for all.
func (p *phase) reset(ctx context.Context) error {
	epoch := strconv.FormatInt(time.Now().UnixNano(), 10)
	for _, addr := range p.layout.replicas {
		if _, err := call(ctx, http.MethodPost, "http://"+addr+"/reset?epoch="+epoch); err != nil {
			return err
		}
	}
	return nil
}

// hedgingState is a service's part of the consumer's GET /hedging.
type hedgingState struct {
	Mode   string           `json:"mode"`
	Hedges int64            `json:"hedges"`
	Won    int64            `json:"won"`
	Gates  map[string]int64 `json:"gates"`
	Routes []struct {
		Shadow []report.Forecast `json:"shadow"`
	} `json:"routes"`
}

// hedging asks the consumer sidecar what hedging did. Without sidecars: nothing.
func (p *phase) hedging(ctx context.Context) (hedgingState, error) {
	if p.kind.hedge == "" {
		return hedgingState{}, nil
	}
	b, err := call(ctx, http.MethodGet, "http://"+p.layout.consumerAdmin+"/hedging")
	if err != nil {
		return hedgingState{}, err
	}
	return parseHedging(b, p.kind.hedge)
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

// summarize puts together what the load, the replicas and the consumer counted.
func summarize(res *load.Result, stats []replica.Stats, before, after hedgingState) *report.Phase {
	out := &report.Phase{
		Requests: res.Counts.Requests, Errors: res.Counts.Failed(),
		P50: ms(res.Quantile(.5)), P90: ms(res.Quantile(.9)), P99: ms(res.Quantile(.99)),
		P999: ms(res.Quantile(.999)), Max: ms(res.Max()),
		Hedges: after.Hedges - before.Hedges, HedgesWon: after.Won - before.Won,
		MaxSendLag: ms(time.Duration(res.Lag.Max())),
	}
	var served int64
	for _, s := range stats {
		served += s.Served
		out.Stalls += s.Stalls
	}
	if out.Requests > 0 {
		out.ExtraLoad = float64(served-out.Requests) / float64(out.Requests)
	}
	for gate, n := range after.Gates {
		if n -= before.Gates[gate]; n > 0 {
			if out.Gates == nil {
				out.Gates = map[string]int64{}
			}
			out.Gates[gate] = n
		}
	}
	for _, r := range after.Routes {
		out.Forecasts = append(out.Forecasts, r.Shadow...)
	}
	for _, p := range res.Curve() {
		out.Curve = append(out.Curve, report.Point{Quantile: p.Quantile, MS: p.MS})
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

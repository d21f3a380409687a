package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/steal"
)

// Jobs of the tail bench.
const (
	freezing   Job = "freezing"
	straggling Job = "straggling"
	together   Job = "together"
	natural    Job = "natural"
)

// TailRows are the rows of the tail bench: ways to three replicas that freeze now and then, whose requests are
// stragglers by chance, or where a hedge gains nothing. With grpc the requests are gRPC calls, which have no
// nature of their own.
func TailRows(grpc bool) []Row {
	freeze := replicas{count: 3, args: []string{"--mode", "stall", "--median", "1ms", "--sigma", "0.5", "--stall-mean", "2s", "--stall-len", "50ms"}}
	hedged := func(hedge string) []hop {
		return mesh(func(consumer, provider *sidecar) {
			consumer.Service = []string{"timeout: 2s", "idempotent: true", "hedge: " + hedge}
			provider.Service = []string{"max_concurrency: 64"}
		})
	}
	rows := []Row{
		{Name: "haproxy", chain: []hop{haproxy}},
		{Name: "envoy", chain: []hop{envoy}},
		{Name: "envoy-hedge", chain: []hop{envoyHedge}},
		{Name: "remora-off", chain: hedged("{mode: off}")},
		{Name: "remora", chain: hedged("{mode: on}")},
		{Name: "remora-max2", chain: hedged("{mode: on, max: 2}")},
	}
	for i := range rows {
		rows[i].jobs, rows[i].replicas = []Job{freezing}, freeze
	}
	for _, row := range []struct{ name, share, hedge string }{
		{"stragglers-5-off", "0.05", "{mode: off}"},
		{"stragglers-5", "0.05", "{mode: on}"},
		{"stragglers-5-budget-9", "0.05", "{mode: on, budget: 0.09}"},
		{"stragglers-2-off", "0.02", "{mode: off}"},
		{"stragglers-2", "0.02", "{mode: on}"},
	} {
		rows = append(rows, Row{Name: row.name, chain: hedged(row.hedge), jobs: []Job{straggling}, replicas: replicas{
			count: 3, args: []string{"--mode", "stall", "--stall-mean", "0s", "--median", "4600us", "--sigma", "0.5", "--stragglers", row.share},
		}})
	}
	for _, futile := range []struct {
		job      Job
		replicas replicas
	}{
		{together, replicas{count: 3, alike: true, args: []string{"--mode", "correlated", "--median", "1ms", "--stall-mean", "2s", "--stall-len", "50ms"}}},
		{natural, replicas{count: 3, args: []string{"--mode", "stall", "--stall-mean", "0s", "--median", "1ms", "--service", "natural"}}},
	} {
		if grpc && futile.job == natural {
			continue
		}
		for _, way := range []struct{ suffix, hedge string }{{"-off", "{mode: off}"}, {"", "{mode: on}"}} {
			rows = append(rows, Row{
				Name: string(futile.job) + way.suffix, chain: hedged(way.hedge), jobs: []Job{futile.job}, replicas: futile.replicas,
			})
		}
	}
	if grpc {
		return overGRPC(rows)
	}
	return rows
}

const (
	// tailWarmUp is long enough for connections and the delay of hedges to settle.
	tailWarmUp = 2 * time.Second

	// futileWarmUp is long enough for hedges to be found useless.
	futileWarmUp = 10 * time.Second
)

// Freezes is an open loop against replicas that freeze. All rows meet the same freezes.
func Freezes(rate float64, d time.Duration) Load {
	name := fmt.Sprintf("open loop, %.0f requests/s, replicas that freeze", rate)
	l := openLoad(name, load.Options{Rate: rate}, tailWarmUp, d)
	l.job = freezing
	return l
}

// stragglersLoad is the name of Stragglers.
const stragglersLoad = "open loop, 600 requests/s, stragglers"

// Stragglers is an open loop against replicas whose requests are stragglers by chance. They have no queue.
func Stragglers(d time.Duration) Load {
	l := openLoad(stragglersLoad, load.Options{Rate: 600}, tailWarmUp, d)
	l.job = straggling
	return l
}

// Names of the loads of Futile.
const (
	togetherLoad = "open loop, 1000 requests/s, replicas that freeze together"
	naturalLoad  = "open loop, 1000 requests/s, a tenth long by nature"
)

// Futile are the open loops where a hedge gains nothing: all replicas freeze at the same moments, or a tenth of the
// requests takes longer wherever it is sent.
func Futile(d time.Duration) (loads []Load) {
	for _, of := range []struct {
		job  Job
		name string
	}{{together, togetherLoad}, {natural, naturalLoad}} {
		l := openLoad(of.name, load.Options{Rate: 1000}, futileWarmUp, d)
		l.job = of.job
		loads = append(loads, l)
	}
	return loads
}

// openLoad is an open loop whose schedule of freezes and counts of requests start with it.
func openLoad(name string, o load.Options, warmUp, d time.Duration) Load {
	run := func(ctx context.Context, s *Stack, d time.Duration) (*load.Result, error) {
		o.Targets, o.Duration, o.Connections, o.Seed, o.Samples = []string{s.URL}, d, 128, s.seed, true
		if s.row.grpc {
			o.Targets[0] = "grpc://" + s.Addr
		}
		return load.Run(ctx, o)
	}
	prepare := func(ctx context.Context, s *Stack) error {
		if _, err := run(ctx, s, warmUp); err != nil {
			return err
		}
		if _, err := s.served(ctx); err != nil {
			return err
		}
		epoch := time.Now()
		for _, r := range s.replicas { // the freezes start at one moment, the counts at 0
			if err := replica.Reset(ctx, r.addr, epoch); err != nil {
				return err
			}
		}
		return nil
	}
	send := func(ctx context.Context, s *Stack) (*Result, error) {
		r, err := run(ctx, s, d)
		if err != nil {
			return nil, err
		}
		served, err := s.served(ctx)
		result := resultOf(r)
		result.Figures[Extra] = 100 * float64(served-r.Counts.Requests) / float64(r.Counts.Requests)
		result.Figures[Lag] = microseconds(time.Duration(r.Lag.Max()))
		return result, err
	}
	return Load{Name: name, period: steal.Period, prepare: prepare, send: send}
}

// served returns how many requests the replicas have served. It waits for those in flight.
func (s *Stack) served(ctx context.Context) (sum int64, err error) {
	for _, r := range s.replicas {
		stats, err := replica.AwaitIdle(ctx, r.Process, r.addr)
		if err != nil {
			return 0, err
		}
		sum += stats.Served
	}
	return sum, nil
}

var tailColumns = []column{
	{"p50 ms", P50, "%.2f", 1e-3, true, false},
	{"p95", P95, "%.2f", 1e-3, true, false},
	{"p99", P99, "%.2f", 1e-3, true, false},
	{"p99.9", P999, "%.1f", 1e-3, true, false},
	{"p99.99", P9999, "%.1f", 1e-3, true, false},
	{"max", Max, "%.1f", 1e-3, true, false},
	{"extra load %", Extra, "%.2f", 1, true, false},
	{"hedges", Hedges, "%.0f", 1, false, false},
	{"won", HedgesWon, "%.0f", 1, false, false},
	{"send lag ms", Lag, "%.1f", 1e-3, true, false},
	{"disturbed %", Disturbed, "%.0f", 1, true, false},
}

// fairExtra is the most extra load, in percent, of an Envoy whose tail is comparable.
const fairExtra = 5

// tailVerdicts judges the promises of the tail bench. They compare medians.
func (s Samples) tailVerdicts(load string) []Verdict {
	switch load {
	case stragglersLoad:
		return s.stragglerVerdicts()
	case togetherLoad:
		return s.futileVerdicts(load, together, "frozen together")
	case naturalLoad:
		return s.futileVerdicts(load, natural, "long by nature")
	}
	of := func(row string, f Figure) float64 { return median(s.Values(row, load, f)) }
	envoy := math.NaN()
	for _, row := range []string{"envoy", "envoy-hedge"} {
		if p := of(row, P999); of(row, Extra) <= fairExtra && !(p >= envoy) {
			envoy = p
		}
	}
	return s.promised(load, []promise{
		{"hedging off: p99 / HAProxy's", "remora-off", P99, of("haproxy", P99), 1.15},
		{"hedging auto: p99 / HAProxy's", "remora", P99, of("haproxy", P99), 1.15},
		{fmt.Sprintf("hedging auto: p99.9 / Envoy's best within %d%% extra load", fairExtra), "remora", P999, envoy, 0.7},
		{"hedging auto: extra load, %", "remora", Extra, 1, 4},
		{"hedging auto, max 2: p99.99, ms", "remora-max2", P9999, 1e3, 20},
	})
}

// stragglerVerdicts judges the promises about stragglers.
func (s Samples) stragglerVerdicts() []Verdict {
	off := median(s.Values("stragglers-5-off", stragglersLoad, P999))
	return s.promised(stragglersLoad, []promise{
		{"5% stragglers: p99, ms", "stragglers-5", P99, 1e3, 30},
		{"5% stragglers: p99.9 / without hedging", "stragglers-5", P999, off, 1},
		{"5% stragglers: extra load, %", "stragglers-5", Extra, 1, 5.3},
		{"5% stragglers, budget 9%: p99, ms", "stragglers-5-budget-9", P99, 1e3, 20},
		{"2% stragglers: p99, ms", "stragglers-2", P99, 1e3, 20},
	})
}

// futileVerdicts judges the promises about a load where a hedge gains nothing.
func (s Samples) futileVerdicts(load string, job Job, what string) []Verdict {
	row := string(job)
	off := func(f Figure) float64 { return median(s.Values(row+"-off", load, f)) }
	return s.promised(load, []promise{
		{what + ": p99 / without hedging", row, P99, off(P99), 1.03},
		{what + ": p99.9 / without hedging", row, P999, off(P999), 1.03},
		{what + ": extra load after 10 s, %", row, Extra, 1, 0.3},
	})
}

// promise limits a figure of a row, divided by base.
type promise struct {
	what, row string
	figure    Figure
	base      float64
	limit     float64
}

func (s Samples) promised(load string, all []promise) (verdicts []Verdict) {
	for _, p := range all {
		values := s.Values(p.row, load, p.figure)
		verdicts = append(verdicts, Verdict{
			What: p.what, Measured: median(values) / p.base, Values: parts(values, p.base), Limit: p.limit, Rounds: len(values),
		})
	}
	return verdicts
}

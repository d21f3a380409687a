package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/steal"
)

// TailRows are the rows of the tail bench: ways to three replicas that freeze now and then.
func TailRows() []Row {
	freeze := replicas{3, []string{"--mode", "stall", "--median", "1ms", "--sigma", "0.5", "--stall-mean", "2s", "--stall-len", "50ms"}}
	hedged := func(hedge string) []hop {
		return mesh(func(consumer, provider *sidecar) {
			consumer.service = []string{"timeout: 2s", "idempotent: true", "hedge: " + hedge}
			provider.service = []string{"max_concurrency: 64"}
		})
	}
	return []Row{
		{Name: "haproxy", chain: []hop{haproxy}, replicas: freeze},
		{Name: "envoy", chain: []hop{envoy}, replicas: freeze},
		{Name: "envoy-hedge", chain: []hop{envoyHedge}, replicas: freeze},
		{Name: "remora-off", chain: hedged("{mode: off}"), replicas: freeze},
		{Name: "remora", chain: hedged("{mode: on}"), replicas: freeze},
		{Name: "remora-max2", chain: hedged("{mode: on, max: 2}"), replicas: freeze},
	}
}

// tailWarmUp is long enough for connections and the delay of hedges to settle.
const tailWarmUp = 2 * time.Second

// Freezes is an open loop against replicas that freeze. All rows meet the same freezes.
func Freezes(rate float64, d time.Duration) Load {
	var hedges, won float64 // before the load
	options := func(s *Stack, d time.Duration) load.Options {
		return load.Options{Targets: []string{s.URL}, Rate: rate, Duration: d, Connections: 128, Seed: s.seed, Samples: true}
	}
	prepare := func(ctx context.Context, s *Stack) error {
		if _, err := load.Run(ctx, options(s, tailWarmUp)); err != nil {
			return err
		}
		if _, err := s.served(ctx); err != nil {
			return err
		}
		epoch := time.Now().UnixNano()
		for _, addr := range s.peers { // the freezes start at one moment, the counts at 0
			if _, err := child.Call(ctx, http.MethodPost, fmt.Sprintf("http://%s/reset?epoch=%d", addr, epoch)); err != nil {
				return err
			}
		}
		var err error
		hedges, won, err = s.hedges(ctx)
		return err
	}
	send := func(ctx context.Context, s *Stack) (*Result, error) {
		r, err := load.Run(ctx, options(s, d))
		if err != nil {
			return nil, err
		}
		served, err := s.served(ctx)
		if err != nil {
			return nil, err
		}
		result := resultOf(r)
		result.more = Figures{
			Extra: 100 * float64(served-r.Counts.Requests) / float64(r.Counts.Requests),
			Lag:   float64(r.Lag.Max()) / float64(time.Microsecond),
		}
		if len(s.admins) > 0 {
			allHedges, allWon, err := s.hedges(ctx)
			if err != nil {
				return nil, err
			}
			result.more[Hedges], result.more[HedgesWon] = allHedges-hedges, allWon-won
		}
		return result, nil
	}
	return Load{fmt.Sprintf("open loop, %.0f requests/s, replicas that freeze", rate), send, steal.Period, prepare}
}

// served returns how many requests the replicas have served. It waits for those in flight:
// the loser of a hedge outlives its request.
func (s *Stack) served(ctx context.Context) (sum int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, addr := range s.peers {
		var stats replica.Stats
		for stats.InFlight = 1; stats.InFlight > 0; {
			if err := getJSON(ctx, "http://"+addr+"/stats", &stats); err != nil {
				return 0, err
			}
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
		sum += stats.Served
	}
	return sum, nil
}

// hedges returns the counts of the consumer's sidecar, 0 without one.
func (s *Stack) hedges(ctx context.Context) (sent, won float64, err error) {
	if len(s.admins) == 0 {
		return 0, 0, nil
	}
	var state struct {
		Services struct {
			Out struct{ Hedges, Won float64 }
		}
	}
	err = getJSON(ctx, "http://"+s.admins[0]+"/hedging", &state)
	return state.Services.Out.Hedges, state.Services.Out.Won, err
}

func getJSON(ctx context.Context, url string, v any) error {
	b, err := child.Call(ctx, http.MethodGet, url)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
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
	of := func(row string, f Figure) float64 { // NaN if it was not measured
		if m, known := median(s.Values(row, load, f)); known {
			return m
		}
		return math.NaN()
	}
	envoy := math.NaN()
	for _, row := range TailRows() {
		if p := of(row.Name, P999); strings.HasPrefix(row.Name, "envoy") && of(row.Name, Extra) <= fairExtra && !(p >= envoy) {
			envoy = p
		}
	}
	var all []Verdict
	for _, p := range []struct {
		what, row string
		figure    Figure
		base      float64
		limit     float64
	}{
		{"hedging off: p99 / HAProxy's", "remora-off", P99, of("haproxy", P99), 1.15},
		{"hedging auto: p99 / HAProxy's", "remora", P99, of("haproxy", P99), 1.15},
		{fmt.Sprintf("hedging auto: p99.9 / Envoy's best within %d%% extra load", fairExtra), "remora", P999, envoy, 0.7},
		{"hedging auto: extra load, %", "remora", Extra, 1, 3.6},
		{"hedging auto, max 2: p99.99, ms", "remora-max2", P9999, 1e3, 20},
	} {
		v := Verdict{What: p.what, Limit: p.limit, Rounds: len(s.Values(p.row, load, p.figure))}
		v.Measured = of(p.row, p.figure) / p.base
		if v.Known = !math.IsNaN(v.Measured); !v.Known {
			v.Measured = 0
		}
		all = append(all, v)
	}
	return all
}

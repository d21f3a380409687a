package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// Callers are the users of an API tier, each of which makes several calls at once to a compute tier
// that runs already. All fields but Out are required.
type Callers struct {
	Rate    float64 // calls per second
	FanOut  int     // calls of one user at once
	Seconds float64 // of each way, in whole minutes
	Minute  time.Duration
	Warmup  time.Duration // before each way, not counted
	Timeout time.Duration // of a call, after which no response is awaited
	Seed    uint64        // of the keys

	Replicas []string // host:port, to reset and count
	Store    string   // host:port, likewise
	Out      *Screen
}

// Way is one way to reach the compute tier.
type Way struct {
	Name    string
	Targets []string // URLs, called in turn
	Joined  bool     // a response may be that to another request: x-nonce is not checked
}

// Run measures each way. It needs an idle tier.
func (c *Callers) Run(ctx context.Context, ways []Way) (*report.Feature, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	r := c.report()
	for i, w := range ways {
		err := c.warmUp(ctx, w, int64(i))
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.Name, err)
		}
		p, err := c.measure(ctx, w, int64(i))
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.Name, err)
		}
		r.Phases = append(r.Phases, p)
		c.Out.Line(w.Name + ": " + p.Line())
	}
	return r, nil
}

func (c *Callers) check() error {
	switch minutes := c.Seconds / c.Minute.Seconds(); {
	case c.Seconds <= 0 || c.Rate <= 0 || c.FanOut < 1 || c.Minute < time.Second:
		return errors.New("demo: seconds, rate and fan-out must be positive, and a minute not below 1 s")
	case minutes != float64(int(minutes)):
		return fmt.Errorf("demo: %g s are no whole minutes of %v", c.Seconds, c.Minute)
	}
	return nil
}

func (c *Callers) report() *report.Feature {
	return &report.Feature{Rate: c.Rate, FanOut: c.FanOut, Seconds: c.Seconds, Minute: c.Minute.Seconds(), Seed: c.Seed}
}

// minutesApart is the distance between the minutes of two measurements: no cache has their keys.
const minutesApart = 1_000_000

func (c *Callers) warmUp(ctx context.Context, w Way, number int64) error {
	_, err := c.load(ctx, w, number*minutesApart, c.Warmup, nil)
	if err == nil {
		_, err = c.idle(ctx)
	}
	return err
}

// measure measures a way from the start of a minute, with empty caches.
func (c *Callers) measure(ctx context.Context, w Way, number int64) (*report.FeaturePhase, error) {
	calls := newTotals(time.Now(), c.Minute, deadline, c.FanOut)
	for _, addr := range c.Replicas {
		if err := replica.Reset(ctx, addr, calls.epoch); err != nil {
			return nil, err
		}
	}
	if err := feature.ResetStore(ctx, c.Store, calls.epoch); err != nil {
		return nil, err
	}
	res, err := c.load(ctx, w, number*minutesApart+minutesApart/2, seconds(c.Seconds), calls)
	if err != nil {
		return nil, err
	}
	served, err := c.idle(ctx)
	if err != nil {
		return nil, err
	}
	store, err := feature.AskStats(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	p := &report.FeaturePhase{Name: w.Name, MaxSendLag: ms(time.Duration(res.Lag.Max()))}
	calls.fill(p)
	c.count(p, served, store)
	return p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// load sends calls for d. The first minute begins now, or at the epoch of calls.
func (c *Callers) load(ctx context.Context, w Way, first int64, d time.Duration, calls *totals) (*load.Result, error) {
	epoch, what := time.Now(), "warm-up"
	o := load.Options{Targets: w.Targets, Method: http.MethodGet, NoNonce: w.Joined,
		Rate: c.Rate, FanOut: c.FanOut, Seed: c.Seed, Duration: d, Timeout: c.Timeout}
	if calls != nil {
		epoch, what, o.Each = calls.epoch, "measuring", calls.add
	}
	keys := feature.NewKeys(c.Seed)
	o.Vary = func(dst []byte, _ int) []byte {
		r := keys.Next(first + int64(time.Since(epoch)/c.Minute))
		return r.AppendHTTP(dst)
	}
	o.Progress = func(s load.Progress) {
		c.Out.Live(fmt.Sprintf("%s %4.1f of %.1f s  %6d calls  %d errors  p50 %.2f ms  p99 %.2f ms  max %.1f ms",
			what, max(s.Elapsed, 0).Seconds(), d.Seconds(), s.Requests, s.Errors, ms(s.P50), ms(s.P99), ms(s.Max)))
	}
	return load.Run(ctx, o)
}

// idle waits until no replica has a request in flight, and returns the counts of each. Responses to
// losers of hedges come last.
func (c *Callers) idle(ctx context.Context) (all []replica.Stats, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+10*time.Second)
	defer cancel()
	for _, addr := range c.Replicas {
		s, err := replica.AskStats(ctx, addr)
		for ; err == nil && s.InFlight > 0; s, err = replica.AskStats(ctx, addr) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for %s to be idle: %w", addr, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// count adds what replicas and store have counted since the start of the measurement.
func (c *Callers) count(p *report.FeaturePhase, served []replica.Stats, store feature.StoreStats) {
	var requests, lookups, hits int64
	for _, s := range served {
		requests, lookups, hits, p.Stalls = requests+s.Served, lookups+s.Lookups, hits+s.Hits, p.Stalls+s.Stalls
	}
	p.ExtraLoad = float64(requests-p.Requests) / float64(max(1, p.Requests))
	p.HitRate = float64(hits) / float64(max(1, lookups))
	second0 := c.Seconds * feature.Window(c.Minute).Seconds() / c.Minute.Seconds()
	p.StoreSecond0 = float64(store.Second0) / second0
	p.StoreLater = float64(store.Requests-store.Second0) / (c.Seconds - second0)
}

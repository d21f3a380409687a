package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/bench"
	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// FeatureOptions says what the demo of a feature service runs: an API tier, whose users' requests
// make several calls at once, a compute tier of three replicas with local caches, and a store.
type FeatureOptions struct {
	Options // Rate is of calls; GRPC is unused

	Phases []string      // default FeaturePhases
	FanOut int           // calls of one user at once; default 10
	Minute time.Duration // after which caches expire; default 10 s

	// LocalBatches bounds a replica's local cache. Default 72, in which half of the calls find what
	// they ask for.
	LocalBatches int
	CacheKind    replica.CacheKind // default replica.PointerCache in mode GC, else replica.FlatCache
}

// deadline is how long a user waits for a call.
const deadline = 100 * time.Millisecond

// gcMean is the mean gap between refills of a replica's cache in mode GC.
const gcMean = "10s"

// tier is one way to reach the compute tier.
type tier struct {
	name            string
	hedge, delay    string // of the sidecar
	affinity, cache bool
}

var tiers = []tier{
	{name: "direct"}, // round robin, without sidecars
	{name: "off", hedge: "off", delay: "auto"},
	{name: "fixed", hedge: "on", delay: "5ms"},
	{name: "on", hedge: "on", delay: "auto"},
	{name: "affinity", hedge: "on", delay: "auto", affinity: true},
	{name: "cache", hedge: "on", delay: "auto", affinity: true, cache: true},
}

// FeaturePhases are the phases that the demo of a feature service shows unless told otherwise.
// There is also "fixed": hedging after 5 ms.
var FeaturePhases = []string{"direct", "off", "on", "affinity", "cache"}

// featureMesh is a mesh with a store, which all phases share.
type featureMesh struct {
	mesh
	opts  FeatureOptions
	store string // its address
	all   bench.Meter
}

// RunFeature runs the phases. It leaves no process, also after a failure or the end of ctx.
func RunFeature(ctx context.Context, o FeatureOptions) (*report.Feature, error) {
	o.Warmup = cmp.Or(o.Warmup, 1500*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.Minute = cmp.Or(o.Minute, 10*time.Second)
	o.FanOut = cmp.Or(o.FanOut, 10)
	if o.CacheKind == "" && o.Mode != replica.GC {
		o.CacheKind = replica.FlatCache
	}
	o.CacheKind = cmp.Or(o.CacheKind, replica.PointerCache)
	o.LocalBatches = cmp.Or(o.LocalBatches, 72)
	if len(o.Phases) == 0 {
		o.Phases = FeaturePhases
	}
	chosen, err := o.tiers()
	if err != nil {
		return nil, err
	}
	r := &report.Feature{Mode: string(o.Mode), Rate: o.Rate, FanOut: o.FanOut, Seconds: o.Seconds,
		Minute: o.Minute.Seconds(), Seed: o.Seed}
	l, err := newLayout(o.Dir, false, o.Phases)
	if err != nil {
		return nil, err
	}
	m := &featureMesh{mesh: mesh{opts: o.Options, layout: l, procs: &child.Group{Dir: o.Dir}}, opts: o}
	defer m.procs.Stop()
	if err := m.prepare(ctx, chosen, r); err != nil {
		return nil, err
	}
	for i, t := range chosen {
		if t.name == "" {
			continue // skipped
		}
		p, err := m.run(ctx, t, int64(i))
		if err != nil {
			return r, fmt.Errorf("phase %s: %w", t.name, err)
		}
		r.Phases = append(r.Phases, p)
		o.Out.Line(fmt.Sprintf("  %d calls, p99 %.2f ms, of users %.2f ms, errors %.2f ‰; at second 0: p99 %.2f ms, errors %.2f ‰, store %.0f/s",
			p.Requests, p.P99, p.Slowest, p.Errors, p.Second0.P99, p.Second0.Errors, p.StoreSecond0))
	}
	return r, m.procs.Check()
}

// tiers returns those of o.Phases.
func (o *FeatureOptions) tiers() (chosen []tier, err error) {
	switch minutes := o.Seconds / o.Minute.Seconds(); {
	case o.Seconds <= 0 || o.Rate <= 0 || o.FanOut < 1:
		return nil, errors.New("demo: seconds, rate and fan-out must be positive")
	case minutes != float64(int(minutes)):
		return nil, fmt.Errorf("demo: %g s are no whole minutes of %v", o.Seconds, o.Minute)
	case !slices.Contains(replica.Modes, o.Mode):
		return nil, fmt.Errorf("demo: unknown mode %q: want one of %v", o.Mode, replica.Modes)
	}
	for _, name := range o.Phases {
		i := slices.IndexFunc(tiers, func(t tier) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("demo: unknown phase %q", name)
		}
		chosen = append(chosen, tiers[i])
	}
	return chosen, nil
}

// prepare starts all processes, and clears the tiers whose configuration the sidecar refuses.
func (m *featureMesh) prepare(ctx context.Context, chosen []tier, r *report.Feature) (err error) {
	o := &m.opts
	o.Out.Line("looking for the sidecar, or building it")
	if m.mesh.opts.Remora, err = sidecarBinary(ctx, o.Remora, o.Self, o.Dir); err != nil {
		return err
	}
	if err := m.layout.writeProviders(); err != nil {
		return err
	}
	addrs, _, err := freeport.Loopback(1)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	m.store = addrs[0]
	o.Out.Live("starting")
	if err := startEtcd(ctx, m.procs, o.Self, m.layout.etcd); err != nil {
		return err
	}
	store, err := m.procs.StartServer(ctx, child.Gets("http://"+m.store+"/healthz"), nil, "store", o.Self, "store",
		"--listen", m.store, "--minute", o.Minute.String(), "--seed", strconv.FormatUint(o.Seed, 10))
	if err != nil {
		return err
	}
	args := []string{"--store", m.store, "--cache-kind", string(o.CacheKind), "--local-batches", strconv.Itoa(o.LocalBatches)}
	if o.Mode == replica.GC {
		args = append(args, "--stall-mean", gcMean) // three replicas that refill more often take all of two CPUs
	}
	if err := m.startReplicas(ctx, args...); err != nil {
		return err
	}
	if err := m.startProviders(ctx); err != nil {
		return err
	}
	for i, t := range chosen {
		if t.hedge == "" {
			continue
		}
		refused, err := m.startConsumer(ctx, t)
		if err != nil {
			return err
		}
		if refused != "" {
			chosen[i] = tier{}
			r.Skipped = append(r.Skipped, t.name+": this sidecar refuses its configuration: "+refused)
			o.Out.Line("skipped " + r.Skipped[len(r.Skipped)-1])
		}
	}
	for _, p := range slices.Concat([]*child.Process{store}, m.replicas, m.sidecars) {
		m.all = append(m.all, p.PID())
	}
	return nil
}

// startConsumer starts the sidecar of a tier, or says why the sidecar refuses its configuration.
func (m *featureMesh) startConsumer(ctx context.Context, t tier) (refused string, err error) {
	c := m.layout.consumers[t.name]
	file := filepath.Join(m.layout.dir, "consumer-"+t.name+".yaml")
	err = render("feature.yaml", file, fields{
		Phase: t.name, Admin: c.admin, Etcd: m.layout.etcd, Listen: c.listen, Hedge: t.hedge, Delay: t.delay,
		Affinity: t.affinity, Cache: t.cache, Minute: m.opts.Minute,
	})
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, m.mesh.opts.Remora, "check", "-c", file).CombinedOutput(); err != nil {
		return strings.TrimSpace(string(out)), ctx.Err()
	}
	return "", m.sidecar(ctx, "consumer-"+t.name, file, c.admin)
}

// run measures a tier from the start of a minute. Minutes before number*minutesApart are of
// earlier phases, whose keys no cache must have.
func (m *featureMesh) run(ctx context.Context, t tier, number int64) (*report.FeaturePhase, error) {
	m.opts.Out.Line(t.name + ": " + t.describe())
	const minutesApart = 1_000_000
	first := number * minutesApart
	if _, err := m.load(ctx, t, first, m.opts.Warmup, nil); err != nil {
		return nil, err
	}
	if _, err := m.idle(ctx); err != nil {
		return nil, err
	}
	before, err := m.read(ctx, t)
	if err != nil {
		return nil, err
	}
	calls := newTally(time.Now(), m.opts.Minute, deadline, m.opts.FanOut)
	if err := m.restart(ctx, calls.epoch); err != nil {
		return nil, err
	}
	d := time.Duration(m.opts.Seconds * float64(time.Second))
	res, err := m.load(ctx, t, first+minutesApart/2, d, calls)
	if err != nil {
		return nil, err
	}
	served, err := m.idle(ctx)
	if err != nil {
		return nil, err
	}
	after, err := m.read(ctx, t)
	if err != nil {
		return nil, err
	}
	p := &report.FeaturePhase{Name: t.name, MaxSendLag: ms(time.Duration(res.Lag.Max())), Gates: map[string]int64{}}
	calls.fill(p)
	m.summarize(p, before, after, served)
	return p, nil
}

func (t tier) describe() string {
	if t.hedge == "" {
		return "round robin, no sidecars"
	}
	s := "through sidecars, hedging " + t.hedge
	if t.delay != "auto" {
		s += " after " + t.delay
	}
	if t.affinity {
		s += ", a replica for each key"
	}
	if t.cache {
		s += ", equal requests joined, responses kept"
	}
	return s
}

// load sends calls for d. The first minute begins now, or at the epoch of calls.
func (m *featureMesh) load(ctx context.Context, t tier, first int64, d time.Duration, calls *tally) (*load.Result, error) {
	epoch, what := time.Now(), "warm-up"
	o := load.Options{Method: http.MethodGet, Rate: m.opts.Rate, FanOut: m.opts.FanOut, Seed: m.opts.Seed, Duration: d, Timeout: m.opts.Timeout}
	if calls != nil {
		epoch, what, o.Each = calls.epoch, "measuring", calls.add
	}
	o.NoNonce = t.cache // a response of others has the nonce of theirs
	keys := feature.NewKeys(m.opts.Seed)
	o.Vary = func(dst []byte, _ int) []byte {
		r := keys.Next(first + int64(time.Since(epoch)/m.opts.Minute))
		return r.AppendHTTP(dst)
	}
	addrs := m.layout.replicas[:]
	if t.hedge != "" {
		addrs = []string{m.layout.consumers[t.name].listen}
	}
	for _, addr := range addrs {
		o.Targets = append(o.Targets, "http://"+addr+"/compute")
	}
	o.Progress = func(s load.Progress) {
		m.opts.Out.Live(fmt.Sprintf("%s %4.1f of %.1f s  %6d calls  %d errors  p50 %.2f ms  p99 %.2f ms  max %.1f ms",
			what, max(s.Elapsed, 0).Seconds(), d.Seconds(), s.Requests, s.Errors, ms(s.P50), ms(s.P99), ms(s.Max)))
	}
	res, err := load.Run(ctx, o)
	if err != nil {
		return nil, errors.Join(err, m.procs.Check())
	}
	return res, nil
}

// restart sets all counts to 0, and begins a minute at epoch, with empty caches.
func (m *featureMesh) restart(ctx context.Context, epoch time.Time) error {
	for _, addr := range m.layout.replicas {
		if err := replica.Reset(ctx, addr, epoch); err != nil {
			return err
		}
	}
	return feature.ResetStore(ctx, m.store, epoch)
}

// reading is what a phase compares the end of its measurement with.
type reading struct {
	hedging      hedgingState
	store        feature.StoreStats
	all, sidecar bench.Usage
	self         bench.Usage
}

func (m *featureMesh) read(ctx context.Context, t tier) (r reading, err error) {
	if t.hedge != "" {
		b, err := child.Call(ctx, http.MethodGet, "http://"+m.layout.consumers[t.name].admin+"/hedging")
		if err != nil {
			return r, err
		}
		if r.hedging, err = parseHedging(b, t.hedge); err != nil {
			return r, err
		}
	}
	var sidecars bench.Meter
	for _, p := range m.sidecars {
		sidecars = append(sidecars, p.PID())
	}
	var failed [4]error
	r.store, failed[0] = feature.AskStats(ctx, m.store)
	r.all, failed[1] = m.all.Usage()
	r.sidecar, failed[2] = sidecars.Usage()
	r.self, failed[3] = bench.Meter{os.Getpid()}.Usage()
	return r, errors.Join(failed[:]...)
}

func (m *featureMesh) summarize(p *report.FeaturePhase, before, after reading, served []replica.Stats) {
	var requests, lookups, hits int64
	for _, s := range served {
		requests, lookups, hits, p.Stalls = requests+s.Served, lookups+s.Lookups, hits+s.Hits, p.Stalls+s.Stalls
	}
	p.ExtraLoad = float64(requests-p.Requests) / float64(max(1, p.Requests))
	p.HitRate = float64(hits) / float64(max(1, lookups))
	// The store's counts began at 0 with this measurement.
	second0 := m.opts.Seconds * feature.Window(m.opts.Minute).Seconds() / m.opts.Minute.Seconds()
	p.StoreSecond0 = float64(after.store.Second0) / second0
	p.StoreLater = float64(after.store.Requests-after.store.Second0) / (m.opts.Seconds - second0)
	p.Hedges, p.HedgesWon = after.hedging.Hedges-before.hedging.Hedges, after.hedging.Won-before.hedging.Won
	for gate, n := range after.hedging.Gates {
		if n -= before.hedging.Gates[gate]; n > 0 {
			p.Gates[gate] = n
		}
	}
	all, sidecars, self := after.all.Since(before.all), after.sidecar.Since(before.sidecar), after.self.Since(before.self)
	good := float64(p.Requests) * (1 - p.Errors/1000)
	p.CPU, p.SidecarCPU = 1e6*all.CPU.Seconds()/max(1, good), 1e6*sidecars.CPU.Seconds()/max(1, good)
	p.Busy = (all.CPU + self.CPU).Seconds() / after.all.At.Sub(before.all.At).Seconds() / float64(runtime.NumCPU())
}

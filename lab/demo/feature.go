package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/bench"
	"github.com/remora-proxy/remora/lab/child"
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
	opts    FeatureOptions
	callers *Callers
	all     bench.Meter // replicas, store and sidecars
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
	l, err := newLayout(o.Dir, false, o.Phases)
	if err != nil {
		return nil, err
	}
	m := &featureMesh{mesh: mesh{opts: o.Options, layout: l, procs: &child.Group{Dir: o.Dir}}, opts: o}
	m.callers = &Callers{Rate: o.Rate, FanOut: o.FanOut, Seconds: o.Seconds, Minute: o.Minute, Warmup: o.Warmup,
		Timeout: o.Timeout, Seed: o.Seed, Replicas: l.replicas[:], Out: o.Out}
	if err := m.callers.check(); err != nil {
		return nil, err
	}
	r := m.callers.report()
	r.Mode = string(o.Mode)
	defer m.procs.Stop()
	if err := m.prepare(ctx, chosen); err != nil {
		return nil, err
	}
	for i, t := range chosen {
		p, err := m.run(ctx, t, int64(i))
		if err != nil {
			return r, fmt.Errorf("phase %s: %w", t.name, err)
		}
		r.Phases = append(r.Phases, p)
		o.Out.Line("  " + p.Line())
	}
	return r, m.procs.Check()
}

// tiers returns those of o.Phases.
func (o *FeatureOptions) tiers() (chosen []tier, err error) {
	if !slices.Contains(replica.Modes, o.Mode) {
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

// prepare starts all processes.
func (m *featureMesh) prepare(ctx context.Context, chosen []tier) (err error) {
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
	m.callers.Store = addrs[0]
	o.Out.Live("starting")
	if err := startEtcd(ctx, m.procs, o.Self, m.layout.etcd); err != nil {
		return err
	}
	store, err := m.procs.StartServer(ctx, child.Gets("http://"+m.callers.Store+"/healthz"), nil, "store", o.Self, "store",
		"--listen", m.callers.Store, "--minute", o.Minute.String(), "--seed", strconv.FormatUint(o.Seed, 10))
	if err != nil {
		return err
	}
	args := []string{"--store", m.callers.Store, "--cache-kind", string(o.CacheKind), "--local-batches", strconv.Itoa(o.LocalBatches)}
	if o.Mode == replica.GC {
		args = append(args, "--stall-mean", gcMean) // three replicas that refill more often take all of two CPUs
	}
	if err := m.startReplicas(ctx, args...); err != nil {
		return err
	}
	if err := m.startProviders(ctx); err != nil {
		return err
	}
	for _, t := range chosen {
		if t.hedge == "" {
			continue
		}
		if err := m.startConsumer(ctx, t); err != nil {
			return err
		}
	}
	for _, p := range slices.Concat([]*child.Process{store}, m.replicas, m.sidecars) {
		m.all = append(m.all, p.PID())
	}
	return nil
}

func (m *featureMesh) startConsumer(ctx context.Context, t tier) error {
	c := m.layout.consumers[t.name]
	file := filepath.Join(m.layout.dir, "consumer-"+t.name+".yaml")
	err := render("feature.yaml", file, fields{
		Phase: t.name, Admin: c.admin, Etcd: m.layout.etcd, Listen: c.listen, Hedge: t.hedge, Delay: t.delay,
		Affinity: t.affinity, Cache: t.cache, Minute: m.opts.Minute,
	})
	if err != nil {
		return err
	}
	return m.sidecar(ctx, "consumer-"+t.name, file, c.admin)
}

// run measures a tier.
func (m *featureMesh) run(ctx context.Context, t tier, number int64) (*report.FeaturePhase, error) {
	m.opts.Out.Line(t.name + ": " + t.describe())
	way := Way{Name: t.name, Joined: t.cache}
	addrs := m.layout.replicas[:]
	if t.hedge != "" {
		addrs = []string{m.layout.consumers[t.name].listen}
	}
	for _, addr := range addrs {
		way.Targets = append(way.Targets, "http://"+addr+"/compute")
	}
	if err := m.callers.warmUp(ctx, way, number); err != nil {
		return nil, errors.Join(err, m.procs.Check())
	}
	before, err := m.read(ctx, t)
	if err != nil {
		return nil, err
	}
	p, err := m.callers.measure(ctx, way, number)
	if err != nil {
		return nil, errors.Join(err, m.procs.Check())
	}
	after, err := m.read(ctx, t)
	if err == nil {
		m.summarize(p, before, after)
	}
	return p, err
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

// reading is what a phase compares the end of its measurement with.
type reading struct {
	hedging            hedgingState
	all, sidecar, self bench.Usage
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
	var failed [3]error
	r.all, failed[0] = m.all.Usage()
	r.sidecar, failed[1] = sidecars.Usage()
	r.self, failed[2] = bench.Meter{os.Getpid()}.Usage()
	return r, errors.Join(failed[:]...)
}

func (m *featureMesh) summarize(p *report.FeaturePhase, before, after reading) {
	p.Gates = map[string]int64{}
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

package mesh

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Run runs s, which must be valid, until the load has ended, all faults are repaired, and
// every request has ended. The same Spec gives the same Result.
func Run(s Spec) *Result { return run(s, tampering{}) }

// tampering breaks a rule on purpose, for tests of the invariants.
type tampering struct {
	loop  func(consumer int, l loop.Loop) loop.Loop // returns the loop of a consumer's sidecar
	begin func(m *mesh)                             // called before the load
}

func run(s Spec, t tampering) *Result {
	m := newMesh(s, t)
	m.schedule()
	if t.begin != nil {
		t.begin(m)
	}
	for _, c := range m.callers {
		c.loop.Post(c.arrive)
	}
	m.w.Run(s.Duration)
	m.over = true
	m.repair()
	m.rest()
	m.checkRest()
	return m.result()
}

// mesh is a running Spec.
type mesh struct {
	spec      Spec
	tampering tampering
	w         *sim.World
	consumers []*consumer
	callers   []*caller
	providers []*provider
	registry  registryService
	journal   journal
	samples   sampler

	loadBy float64
	over   bool // the load has ended
	// troubled is the time until which a fault may delay the output of a
	// sidecar. Slow applications don't count.
	troubled time.Duration
}

// random returns the random numbers for one purpose of one host. They do not depend on
// anything else in the mesh.
func (m *mesh) random(purpose, index int) *rand.Rand {
	return rand.New(rand.NewPCG(m.spec.Seed, uint64(purpose)<<32|uint64(index)))
}

// Purposes of random sources.
const (
	forArrivals = 1 + iota
	forWork
	forStalls
	forNews
	forBatch
)

func newMesh(s Spec, t tampering) *mesh {
	m := &mesh{spec: s, tampering: t, w: sim.New(s.Seed), loadBy: 1}
	m.journal.mesh = m
	m.w.Net.SetPaths(m.path)
	m.w.OnTurn(m.journal.turn)
	m.registry = newRegistry(m)
	consumerConfig, err := s.consumerConfig()
	if err != nil {
		panic(err)
	}
	providerConfig, err := s.providerConfig()
	if err != nil {
		panic(err)
	}
	for i := range s.Providers {
		p := newProvider(m, i, providerConfig)
		m.providers = append(m.providers, p)
		p.start()
		m.registry.join(p)
	}
	for i := range s.Consumers {
		c := newConsumer(m, i, consumerConfig)
		m.consumers = append(m.consumers, c)
		c.start()
		m.addCaller(i, false)
		if s.Batch > 0 {
			m.addCaller(i, true)
		}
	}
	m.w.Run(time.Millisecond)
	m.samples.start(m)
	return m
}

// path returns the network between two hosts. The one within a host has no faults.
func (m *mesh) path(from, to string) sim.Path {
	p := sim.DefaultPaths(from, to)
	if !strings.HasSuffix(from, callerSuffix) && !strings.HasSuffix(to, callerSuffix) && !m.over {
		p.Reset, p.Bandwidth = m.spec.Breaks, int64(m.spec.Bandwidth)
	}
	return p
}

// repair ends all faults. What is on a slow network by then still arrives at its pace.
func (m *mesh) repair() {
	if d := m.w.Net.Busy() - m.w.Now(); d > 0 {
		m.heldUp(d)
	}
	m.w.Net.SetPaths(m.path)
	m.registry.up()
	for _, p := range m.providers {
		p.heal()
		p.app.thaw()
		p.app.slow, p.app.failing = 1, false
		p.revive()
	}
	for _, c := range m.consumers {
		c.revive()
	}
}

// restLimit is the time in which a mesh must become idle. restFor is how long no request
// may be open until it counts as idle, since segments may be on the network.
const (
	restLimit = time.Minute
	restFor   = 50 * time.Millisecond
)

// rest runs the world until the mesh is idle.
func (m *mesh) rest() {
	m.w.Run(max(0, m.troubled-m.w.Now()))
	since := m.w.Now()
	for end := since + restLimit; m.w.Now() < end && m.w.Now()-since < restFor; {
		m.w.Run(restFor / 5)
		if !m.idle() {
			since = m.w.Now()
		}
	}
}

func (m *mesh) idle() bool {
	if m.journal.open > 0 {
		return false
	}
	for _, p := range m.providers {
		if !p.idle() || p.app.pending() > 0 {
			return false
		}
	}
	for _, c := range m.consumers {
		if !c.idle() {
			return false
		}
	}
	return true
}

// consumerHost and providerHost are addresses of up to maxHosts of each.
func consumerHost(i int) string { return fmt.Sprintf("10.%d.%d.%d", i/62500, i/250%250, i%250+1) }
func providerHost(i int) string { return fmt.Sprintf("10.%d.%d.%d", 100+i/62500, i/250%250, i%250+1) }

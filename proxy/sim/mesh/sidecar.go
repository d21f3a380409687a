package mesh

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// epoch is the time of day at which a run begins.
var epoch = time.Date(2026, 3, 29, 23, 59, 59, 900e6, time.UTC)

// sidecar is one process of the product on loops of its own.
type sidecar struct {
	m     *mesh
	index int // among its kind, from 0
	host  string
	port  int // of the first loop; the others follow
	cfg   *config.Config
	wrap  func(l loop.Loop) loop.Loop // may be nil

	loops  []*sim.Loop
	proc   *proxy.Process
	closes []func() // listeners
	down   bool
	// lives counts starts. Events scheduled for one life do not happen in the
	// next.
	lives int
	past  stats.ServiceStats // of earlier lives

	paused time.Duration // until then
}

// begin starts a new process.
func (s *sidecar) begin() {
	s.down = false
	s.lives++
	s.proc = proxy.NewProcess(s.cfg, s.m.spec.Loops)
	s.proc.SetWall(func() time.Time { return epoch.Add(s.m.w.Now()) })
	s.loops, s.closes = nil, nil
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	listener := s.proc.Generation().Listener(s.cfg.Listeners[0].Name)
	for i := range s.m.spec.Loops {
		name := s.host
		if i > 0 {
			name = fmt.Sprintf("%s/%d", s.host, i)
		}
		l := s.m.w.Loop(name)
		s.loops = append(s.loops, l)
		driver := loop.Loop(l)
		if s.wrap != nil {
			driver = s.wrap(l)
		}
		w := proxy.NewWorker(s.proc, driver, log, s.m.spec.Seed+uint64(s.index))
		accept := func() loop.Receiver { return listener.Accept(w) }
		s.closes = append(s.closes, s.m.w.Net.Listen(fmt.Sprintf("%s:%d", s.host, s.port+i), l, accept))
	}
}

func (s *sidecar) update(service string, endpoints ...registry.Endpoint) {
	s.proc.Update(registry.NewSnapshot(service, registry.SourceLive, epoch, endpoints))
}

// crash ends all loops of the process at once.
func (s *sidecar) crash() {
	s.bury()
	for _, l := range s.loops {
		s.m.w.Faults.Crash(l)
	}
}

// vanish takes the host off the network.
func (s *sidecar) vanish() {
	s.bury()
	s.m.w.Faults.Vanish(s.loops[0])
}

// bury checks the budget of a process that ends, and keeps its counts.
func (s *sidecar) bury() {
	s.m.journal.checkBudget(s)
	s.past = s.stats()
	s.down = true
}

// pause stops the process for d.
func (s *sidecar) pause(d time.Duration) {
	s.paused = max(s.paused, s.m.w.Now()+d)
	for _, l := range s.loops {
		if !s.down {
			s.m.w.Faults.Pause(l, d)
		}
	}
}

func (s *sidecar) idle() bool { return s.down || s.proc.Pending() == 0 && s.proc.Held() == 0 }

// service returns the name of the only service.
func (s *sidecar) service() string {
	for name := range s.cfg.Services {
		return name
	}
	return ""
}

// stats returns the service's counts of all lives.
func (s *sidecar) stats() stats.ServiceStats {
	sum := s.past
	if !s.down {
		for _, w := range s.proc.Workers() {
			sum.Add(w.ServiceStats(s.service()))
		}
	}
	return sum
}

// consumer is a sidecar beside callers.
type consumer struct {
	sidecar
	endpoints   int           // number of endpoints in use
	endpointsAt time.Duration // since when
}

func newConsumer(m *mesh, i int, cfg *config.Config) *consumer {
	own := *cfg
	own.Node.ID = fmt.Sprintf("consumer-%d", i+1)
	c := &consumer{sidecar: sidecar{m: m, index: i, host: consumerHost(i), port: egressPort, cfg: &own}}
	if tamper := m.tampering.loop; tamper != nil {
		c.wrap = func(l loop.Loop) loop.Loop { return tamper(i, l) }
	}
	return c
}

func (c *consumer) start() {
	c.begin()
	c.m.registry.tell(c)
}

func (c *consumer) timeout() time.Duration { return c.cfg.Services["compute"].Timeout }

// hear takes a snapshot of the service's endpoints.
func (c *consumer) hear(snap *registry.Snapshot) {
	c.proc.Update(snap)
	c.endpoints, c.endpointsAt = len(snap.Endpoints), max(c.m.w.Now(), c.paused)
	if subset := c.cfg.Services["compute"].LB.Subset; subset > 0 {
		c.endpoints = min(c.endpoints, subset)
	}
}

func (c *consumer) revive() {
	if c.down {
		c.start()
	}
}

// provider is a sidecar beside an application.
type provider struct {
	sidecar
	app      *app
	draining bool
	from, to bool // partitioned from consumers, in that direction
}

func newProvider(m *mesh, i int, cfg *config.Config) *provider {
	host := providerHost(i)
	return &provider{
		sidecar: sidecar{m: m, index: i, host: host, port: ingressPort, cfg: cfg},
		app:     newApp(m, i, host+"-app", fmt.Sprintf("%s:%d", host, appPort)),
	}
}

// called returns the host that consumers call.
func (p *provider) called() string {
	if p.m.spec.Direct {
		return p.app.name
	}
	return p.host
}

// addr returns the address for consumers that use a loop of the provider.
func (p *provider) addr(loop int) string {
	if p.m.spec.Direct {
		return p.app.addr
	}
	return fmt.Sprintf("%s:%d", p.host, ingressPort+loop)
}

// start starts the application and the sidecar beside it.
func (p *provider) start() {
	p.draining = false
	p.app.start()
	p.begin()
	p.update("local", registry.Endpoint{Addr: p.app.addr, Weight: 1})
}

// revive starts the application and the sidecar, if they are down, and registers the
// provider.
func (p *provider) revive() {
	switch {
	case p.down || p.draining:
		p.stop((*sidecar).crash)
		p.start()
	case p.app.down:
		p.app.start()
	}
	p.m.registry.join(p)
}

// stop ends the sidecar, with a crash or otherwise, and the application.
func (p *provider) stop(end func(s *sidecar)) {
	if p.down {
		return
	}
	end(&p.sidecar)
	p.app.crash()
}

// drain removes the provider from the registry. It finishes its requests and accepts no new
// ones.
func (p *provider) drain() {
	if p.down || p.draining {
		return
	}
	p.draining = true
	p.m.registry.leave(p)
	for _, closeListener := range p.closes {
		closeListener()
	}
	p.proc.Drain()
}

// heal ends the partitions between the provider and the consumers.
func (p *provider) heal() {
	if !p.from && !p.to {
		return
	}
	p.from, p.to = false, false
	for _, c := range p.m.consumers {
		p.m.w.Faults.Heal(c.host, p.called())
	}
}

// partition cuts one direction between consumers and the provider.
func (p *provider) partition(towards bool) {
	for _, c := range p.m.consumers {
		if towards {
			p.to = true
			p.m.w.Faults.PartitionOneWay(c.host, p.called())
		} else {
			p.from = true
			p.m.w.Faults.PartitionOneWay(p.called(), c.host)
		}
	}
}

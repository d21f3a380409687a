package proxy

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// Process is what all loops of one sidecar share: the configuration, the
// services' counts, and the limits that are limits of the process. Everything
// in it is immutable or atomic; all else lives in the Workers.
type Process struct {
	shared  shard.Process
	current atomic.Pointer[Generation]
	workers []*Worker
	streams downstream.Streams // nil: none
}

// NewProcess lays out the shared state for a valid configuration on a number of
// loops. Workers are added with NewWorker, one a loop, before any traffic.
func NewProcess(cfg *config.Config, loops int) *Process {
	p := &Process{shared: shard.Process{Loops: loops}}
	p.use(p.generation(cfg, &Generation{}))
	return p
}

// SetWall says what the time of day is, for the Date of messages and the lines of the
// access log. Without it they get none. Loops call now, about once a second each and
// for each line. SetWall is called before the first connection.
func (p *Process) SetWall(now func() time.Time) { p.shared.WallClock = now }

// SetStreams says who carries streams. It is called before any traffic; without
// it, messages are all there is: wishes to upgrade are ignored, as RFC 9110
// section 7.8 allows, and what is too long is refused.
func (p *Process) SetStreams(s downstream.Streams) {
	p.streams, p.shared.Streams = s, s != nil
	for _, w := range p.workers {
		w.host.Streams = s
	}
}

// SetSpans says who takes the records of sampled requests. It is called before any
// traffic; without it none is sampled.
func (p *Process) SetSpans(s trace.Sink) { p.shared.Sink = s }

// Config is the configuration in use.
func (p *Process) Config() *config.Config { return p.current.Load().cfg }

// Generation is what is in use: 1 at the start, and one more after each Switch.
func (p *Process) Generation() *Generation { return p.current.Load() }

// Workers returns the workers, one a loop.
func (p *Process) Workers() []*Worker { return p.workers }

// Update is that of the Generation in use.
func (p *Process) Update(snap *registry.Snapshot) { p.current.Load().Update(snap) }

// Snapshot is the newest one given to Update for the service, or nil.
func (p *Process) Snapshot(service string) *registry.Snapshot {
	if s := p.sharedOf(service); s != nil {
		return s.Newest()
	}
	return nil
}

// sharedOf is what all loops share of a service in use; nil: there is none.
func (p *Process) sharedOf(service string) *exchange.SharedService {
	return p.current.Load().services[service].SharedService
}

// Buffered is the number of message bytes held, to within 64 KiB per loop.
func (p *Process) Buffered() int64 { return p.shared.Budget.Held() }

// Hold counts n bytes of a stream's buffers against limits.buffered, or gives
// them back (n < 0). Any goroutine may call it.
func (p *Process) Hold(n int) { p.shared.Budget.Hold(int64(n)) }

// Full reports whether limits.buffered is reached, so that no new work may begin.
func (p *Process) Full() bool { return p.shared.Budget.Full(0) }

// Pending is the number of exchanges in flight over all services, losers that
// are still at an application included.
func (p *Process) Pending() (n int) {
	g := p.current.Load()
	for _, s := range g.services {
		n += s.InFlight()
	}
	return n + g.formerPending()
}

// Links is the number of accepted links that may carry requests. After Drain or
// Retire it only falls, but for a moment at each link that is turned away; at 0 no answer
// is parked any more.
func (p *Process) Links() int { return int(p.shared.Links.Load()) }

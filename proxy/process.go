package proxy

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// Process is what all loops of one sidecar share: the configuration, the counts of
// services, and the limits of the process. All of it is immutable or atomic; everything
// else belongs to a Worker. Any goroutine may call a method that doesn't say otherwise.
type Process struct {
	shared  shard.Process
	current atomic.Pointer[Generation]
	workers []*Worker
	streams downstream.Streams // nil means that the process can't carry streams

	shedding atomic.Bool // a round of shedAll has begun and not ended
}

// NewProcess returns a process with a valid configuration, for a number of loops.
// NewWorker must add one worker for each loop before any traffic.
func NewProcess(cfg *config.Config, loops int) *Process {
	p := &Process{shared: shard.Process{Loops: loops}}
	p.setCurrent(p.newGeneration(cfg, &Generation{}))
	return p
}

// SetWall sets the function that returns the time of day, for the Date of messages and
// the access log. Without it they have no time. Loops call now about once a second, and
// for each line of the access log. SetWall must be called before the first connection.
func (p *Process) SetWall(now func() time.Time) { p.shared.WallClock = now }

// SetStreams sets the implementation of streams, before any traffic. Without it, requests to
// upgrade are ignored (RFC 9110 section 7.8), and messages that are too long are refused.
func (p *Process) SetStreams(s downstream.Streams) {
	p.streams, p.shared.Streams, p.shared.PipeMaker = s, s != nil, nil
	if s != nil {
		p.shared.PipeMaker = s.NewPipe
	}
	for _, w := range p.workers {
		w.host.Streams = s
	}
}

// SetSpans sets the receiver of the records of sampled requests. It must be called
// before any traffic. Without it no request is sampled.
func (p *Process) SetSpans(s trace.Sink) { p.shared.Sink = s }

// SetOverload sets the function that reports whether the process runs out of a resource, for
// which batch requests are refused. Loops call it for each. It must be set before any traffic.
func (p *Process) SetOverload(f func() bool) { p.shared.Overloaded = f }

// Config returns the configuration in use, which must not be changed.
func (p *Process) Config() *config.Config { return p.current.Load().cfg }

// Generation returns the generation in use.
func (p *Process) Generation() *Generation { return p.current.Load() }

// Workers returns the workers, one for each loop.
func (p *Process) Workers() []*Worker { return p.workers }

// Update calls Update of the generation in use.
func (p *Process) Update(snap *registry.Snapshot) { p.current.Load().Update(snap) }

// Snapshot returns the newest snapshot that Update got for the service, or nil.
func (p *Process) Snapshot(service string) *registry.Snapshot {
	return p.sharedOf(service).Newest()
}

// sharedOf returns what all loops share of a service, empty if it is not in use.
func (p *Process) sharedOf(name string) *service.SharedService {
	return cmp.Or(p.current.Load().services[name].SharedService, &service.SharedService{})
}

// Buffered returns the message bytes in memory, with an error of up to 64 KiB per loop.
func (p *Process) Buffered() int64 { return p.shared.Budget.Held() }

// Charge counts n bytes of streams' buffers against limits.buffered; a negative n releases them.
func (p *Process) Charge(n int) { p.shared.Budget.Charge(int64(n)) }

// Full reports whether limits.buffered is reached, so that no new stream may begin.
func (p *Process) Full() bool { return p.shared.Budget.Full(0) }

// Pending returns the requests in flight of all services, until their last attempt has ended.
func (p *Process) Pending() (n int) {
	g := p.current.Load()
	for _, s := range g.services {
		n += s.InFlight()
	}
	return n + g.removedInFlight()
}

// Links returns the number of accepted links, as Listener.Links does, for all listeners. It
// only falls after Drain or Retire; once it is 0, no more responses are parked.
func (p *Process) Links() int { return int(p.shared.Links.Load()) }

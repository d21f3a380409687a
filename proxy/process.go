package proxy

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// Process is what all loops of one sidecar share: the configuration, the
// services' counts, and the limits that are limits of the process. Everything
// in it is immutable or atomic; all else lives in the Workers.
type Process struct {
	// Wall is the time of day, for the Date of messages and the lines of the
	// access log; nil: they get none. Loops call it, about once a second each and
	// for each line. It is set before the first connection.
	Wall func() time.Time

	current  atomic.Pointer[Generation]
	workers  []*Worker
	streams  Streams // nil: none
	spans    Spans   // nil: none
	ledger   ledger
	links    atomic.Int32 // accepted ones that may carry requests
	draining atomic.Bool
	loops    int
}

// NewProcess lays out the shared state for a valid configuration on a number of
// loops. Workers are added with NewWorker, one a loop, before any traffic.
func NewProcess(cfg *config.Config, loops int) *Process {
	p := &Process{loops: loops}
	p.use(p.generation(cfg, &Generation{}))
	return p
}

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
	if s := p.shared(service); s != nil {
		return s.snapshot.Load()
	}
	return nil
}

// shared is what all loops share of a service in use; nil: there is none.
func (p *Process) shared(service string) *sharedService {
	return p.current.Load().services[service].sharedService
}

// Buffered is the number of message bytes held, to within 64 KiB per loop.
func (p *Process) Buffered() int64 { return p.ledger.bytes.Load() }

// Pending is the number of exchanges in flight over all services, losers that
// are still at an application included.
func (p *Process) Pending() (n int) {
	g := p.current.Load()
	for _, s := range g.services {
		n += int(s.pending.Load())
	}
	return n + g.formerPending()
}

// Links is the number of accepted links that may carry requests. After Drain it
// only falls, but for a moment at each link that is turned away; at 0 no answer
// is parked any more.
func (p *Process) Links() int { return int(p.links.Load()) }

// ledger counts the bytes of messages held in memory (limits.buffered).
type ledger struct {
	limit atomic.Int64 // from here on, greedy peers are refused new work
	// hard is the mark from which on the loops close what is greediest: past
	// the limit, what is in progress may still grow, and answers come in.
	hard  atomic.Int64
	bytes atomic.Int64
}

func (l *ledger) configure(lim *config.Limits) {
	l.limit.Store(lim.Buffered)
	l.hard.Store(lim.Buffered + max(lim.Buffered/4, hardMessages*lim.Message))
}

// room is what is between the two marks.
func (l *ledger) room() int64 { return max(0, l.hard.Load()-l.limit.Load()) }

// hardMessages is how many of the longest messages the hard mark is above the
// limit at least: one is in memory up to three times while it moves from one
// connection to another.
const hardMessages = 4

// full tells that memory is short: that others than what has counted own bytes
// for itself hold all there is. New work is then refused to greedy peers.
func (l *ledger) full(own int) bool { return l.bytes.Load()-int64(own) >= l.limit.Load() }

// over tells that the hard mark is passed, delta bytes not yet told included.
func (l *ledger) over(delta int64) bool { return l.bytes.Load()+delta >= l.hard.Load() }

// sharedService is the part of a service that all loops share, for as long as the
// service keeps its connections: through all reloads that only tune it.
type sharedService struct {
	name   string
	wire   []byte // the name, as it is sent
	subset int    // lb.subset

	loops    []atomic.Pointer[service] // by the worker's index; each loop sets its own
	snapshot atomic.Pointer[registry.Snapshot]
	pending  atomic.Int32 // exchanges in flight
	slots    slots
	// lastAnswer is when an endpoint last answered, on the loops' clock.
	lastAnswer atomic.Int64

	// own counts this process's attempts at each address, for the "reported by
	// others" of least_pending. Update alone touches the map; loops get the
	// counters with the snapshot.
	own map[string]*atomic.Int32
}

func newSharedService(c *config.Service, loops int) *sharedService {
	s := &sharedService{
		name: c.Name, wire: []byte(c.Name), subset: c.LB.Subset, loops: make([]atomic.Pointer[service], loops),
	}
	if c.MaxConcurrency == config.MaxConcurrencyAuto {
		s.slots.auto = newAutoLimit(&s.slots.limit)
	}
	return s
}

// serviceBounds are what one configuration allows a service, over all loops.
type serviceBounds struct {
	maxPending int32
	rate       *rateLimit // nil: none
	breaker    *breaker   // nil: none
}

func newServiceBounds(c *config.Service) *serviceBounds {
	b := &serviceBounds{maxPending: int32(c.MaxPending)}
	if c.RateLimit.Rate > 0 {
		b.rate = newRateLimit(&c.RateLimit)
	}
	if c.Breaker.Consecutive > 0 {
		b.breaker = newBreaker(&c.Breaker)
	}
	return b
}

// admit applies bounds to a request or stream. Without a Failure it counts as one
// of max_pending, and its pass is to be judged.
func (s *sharedService) admit(now time.Duration, b *serviceBounds) (pass, *Failure) {
	if b.rate != nil && !b.rate.take(now) {
		return passNone, FailRateLimited
	}
	if s.pending.Add(1) > b.maxPending {
		s.pending.Add(-1)
		return passNone, FailOverloaded
	}
	if b.breaker == nil {
		return passNone, nil
	}
	p := b.breaker.ask(now)
	if p == passNone {
		s.pending.Add(-1)
		return passNone, FailBreakerOpen
	}
	return p, nil
}

package proxy

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// Process is what all loops of one sidecar share: the configuration, the
// services' counts, and the limits that are limits of the process. Everything
// in it is immutable or atomic; all else lives in the Workers.
type Process struct {
	// Wall is the time of day, for the Date of messages; nil: they get none.
	// Loops call it, about once a second each. It is set before the first
	// connection.
	Wall func() time.Time

	cfg      *config.Config
	services map[string]*sharedService
	rates    map[string]*rateLimit // of listeners that have one, by name
	workers  []*Worker
	streams  Streams // nil: none
	ledger   ledger
	links    atomic.Int32 // accepted ones that may carry requests
	draining atomic.Bool
	loops    int
}

// NewProcess lays out the shared state for a valid configuration on a number of
// loops. Workers are added with NewWorker, one a loop, before any traffic.
func NewProcess(cfg *config.Config, loops int) *Process {
	p := &Process{cfg: cfg, loops: loops, services: make(map[string]*sharedService, len(cfg.Services))}
	p.ledger.limit = cfg.Limits.Buffered
	p.ledger.hard = cfg.Limits.Buffered + max(cfg.Limits.Buffered/4, hardMessages*cfg.Limits.Message)
	p.rates = make(map[string]*rateLimit)
	for i := range cfg.Listeners {
		if l := &cfg.Listeners[i]; l.RateLimit.Rate > 0 {
			p.rates[l.Name] = newRateLimit(&l.RateLimit)
		}
	}
	for name, c := range cfg.Services {
		p.services[name] = newSharedService(c)
	}
	return p
}

// Workers returns the workers, one a loop.
func (p *Process) Workers() []*Worker { return p.workers }

// Update gives every loop a new snapshot of a service's endpoints. It may be
// called from any goroutine, one at a time for each service. Snapshots may
// overtake each other on their way to a loop, so a loop ignores one whose
// version it has passed.
func (p *Process) Update(snap *registry.Snapshot) {
	shared := p.services[snap.Service]
	if shared == nil {
		return
	}
	targets := make([]lb.Target, len(snap.Endpoints))
	for i, e := range snap.Endpoints {
		targets[i] = lb.Target{Addr: e.Addr, Zone: e.Zone, Weight: float64(e.Weight), Unhealthy: e.Unhealthy}
	}
	// Not on the loops: to rank a thousand takes a millisecond.
	targets = lb.Subset(targets, shared.cfg.LB.Subset, p.cfg.Node.ID)
	own := make(map[string]*atomic.Int32, len(snap.Endpoints))
	for _, e := range snap.Endpoints {
		if own[e.Addr] = shared.own[e.Addr]; own[e.Addr] == nil {
			own[e.Addr] = new(atomic.Int32)
		}
	}
	shared.own = own
	shared.snapshot.Store(snap)
	for _, w := range p.workers {
		w.loop.Post(func() { w.services[snap.Service].apply(snap, targets, own) })
	}
}

// Snapshot is the newest one given to Update for the service, or nil.
func (p *Process) Snapshot(service string) *registry.Snapshot {
	if shared := p.services[service]; shared != nil {
		return shared.snapshot.Load()
	}
	return nil
}

// Buffered is the number of message bytes held, to within 64 KiB per loop.
func (p *Process) Buffered() int64 { return p.ledger.bytes.Load() }

// Pending is the number of exchanges in flight over all services, losers that
// are still at an application included.
func (p *Process) Pending() (n int) {
	for _, s := range p.services {
		n += int(s.pending.Load())
	}
	return n
}

// Links is the number of accepted links that may carry requests. After Drain it
// only falls, but for a moment at each link that is turned away; at 0 no answer
// is parked any more.
func (p *Process) Links() int { return int(p.links.Load()) }

// ledger counts the bytes of messages held in memory (limits.buffered).
type ledger struct {
	limit int64 // from here on, greedy peers are refused new work
	// hard is the mark from which on the loops close what is greediest: past
	// the limit, what is in progress may still grow, and answers come in.
	hard  int64
	bytes atomic.Int64
}

// hardMessages is how many of the longest messages the hard mark is above the
// limit at least: one is in memory up to three times while it moves from one
// connection to another.
const hardMessages = 4

// full tells that memory is short: that others than what has counted own bytes
// for itself hold all there is. New work is then refused to greedy peers.
func (l *ledger) full(own int) bool { return l.bytes.Load()-int64(own) >= l.limit }

// over tells that the hard mark is passed, delta bytes not yet told included.
func (l *ledger) over(delta int64) bool { return l.bytes.Load()+delta >= l.hard }

// sharedService is the part of a service that all loops share.
type sharedService struct {
	cfg        *config.Service
	wireName   []byte
	maxPending int

	snapshot atomic.Pointer[registry.Snapshot]
	pending  atomic.Int32 // exchanges in flight
	slots    slots
	rate     *rateLimit // nil: none
	breaker  *breaker   // nil: none
	// lastAnswer is when an endpoint last answered, on the loops' clock.
	lastAnswer atomic.Int64

	// own counts this process's attempts at each address, for the "reported by
	// others" of least_pending. Update alone touches the map; loops get the
	// counters with the snapshot.
	own map[string]*atomic.Int32
}

func newSharedService(c *config.Service) *sharedService {
	s := &sharedService{cfg: c, wireName: []byte(c.Name), maxPending: c.MaxPending}
	if c.RateLimit.Rate > 0 {
		s.rate = newRateLimit(&c.RateLimit)
	}
	if c.Breaker.Consecutive > 0 {
		s.breaker = newBreaker(&c.Breaker)
	}
	s.slots.maxQueue = int32(c.MaxQueue)
	if c.MaxConcurrency == config.MaxConcurrencyAuto {
		s.slots.auto = newAutoLimit(&s.slots.limit)
	} else {
		s.slots.limit.Store(int32(c.MaxConcurrency))
	}
	return s
}

// admit applies the limits of the service to a request or stream. Without a
// Failure it counts as one of max_pending, and its pass is to be judged.
func (s *sharedService) admit(now time.Duration) (pass, *Failure) {
	if s.rate != nil && !s.rate.take(now) {
		return passNone, FailRateLimited
	}
	if s.pending.Add(1) > int32(s.maxPending) {
		s.pending.Add(-1)
		return passNone, FailOverloaded
	}
	if s.breaker == nil {
		return passNone, nil
	}
	p := s.breaker.ask(now)
	if p == passNone {
		s.pending.Add(-1)
		return passNone, FailBreakerOpen
	}
	return p, nil
}

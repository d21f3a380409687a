package proxy

import (
	"reflect"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// sharedService is the part of a service that all loops share, for as long as the
// service keeps its connections: through all reloads that only tune it.
type sharedService struct {
	name   string
	wire   []byte // the name, as it is sent
	subset int    // lb.subset

	loops    []atomic.Pointer[service] // by the shard's index; each loop sets its own
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

// serviceName is the service's name.
func (s *sharedService) serviceName() string { return s.name }

// inFlight is the number of exchanges in flight.
func (s *sharedService) inFlight() int { return int(s.pending.Load()) }

// slotsInUse is how many slots are in use, and how many requests wait for one.
func (s *sharedService) slotsInUse() (used, queued int) {
	return int(s.slots.inUse.Load()), int(s.slots.queued.Load())
}

// slotLimit is how many slots there are now; 0 means no limit.
func (s *sharedService) slotLimit() int { return int(s.slots.limit.Load()) }

// newest is the newest snapshot given to update, or nil.
func (s *sharedService) newest() *registry.Snapshot { return s.snapshot.Load() }

// known reports whether every loop has applied some snapshot.
func (s *sharedService) known() bool {
	for i := range s.loops {
		if at := s.loops[i].Load(); at != nil && !at.known.Load() {
			return false
		}
	}
	return true
}

// update gives every loop a new snapshot of the service's endpoints. It may be
// called from any goroutine, one at a time. Snapshots may overtake each other on
// their way to a loop, so a loop ignores one whose version it has passed.
// node ranks the endpoints for lb.subset.
func (s *sharedService) update(snap *registry.Snapshot, node string) {
	targets := make([]lb.Target, len(snap.Endpoints))
	for i, e := range snap.Endpoints {
		targets[i] = lb.Target{Addr: e.Addr, Zone: e.Zone, Weight: float64(e.Weight), Unhealthy: e.Unhealthy}
	}
	// Not on the loops: to rank a thousand takes a millisecond.
	targets = lb.Subset(targets, s.subset, node)
	own := make(map[string]*atomic.Int32, len(snap.Endpoints))
	for _, e := range snap.Endpoints {
		if own[e.Addr] = s.own[e.Addr]; own[e.Addr] == nil {
			own[e.Addr] = new(atomic.Int32)
		}
	}
	s.own = own
	s.snapshot.Store(snap)
	for i := range s.loops {
		if at := s.loops[i].Load(); at != nil {
			at.w.loop.Post(func() { at.apply(snap, targets, own) })
		}
	}
}

// member is a service of a generation.
type member struct {
	*sharedService
	cfg    *config.Service
	bounds *serviceBounds
}

// newMember makes the member for c. It continues old, of the generation before, unless
// that is another service of the same name.
func newMember(c *config.Service, old member, loops int) member {
	m := member{sharedService: old.sharedService, cfg: c, bounds: newServiceBounds(c)}
	if old.cfg == nil || !reflect.DeepEqual(firm(old.cfg), firm(c)) {
		m.sharedService = newSharedService(c, loops)
		return m
	}
	if old.cfg.RateLimit == c.RateLimit {
		m.bounds.rate = old.bounds.rate
	}
	if old.cfg.Breaker == c.Breaker {
		m.bounds.breaker = old.bounds.breaker
	}
	return m
}

// firm is c without what can be tuned while the service works. With anything else
// changed it is another service of the same name: the old one drains.
func firm(c *config.Service) config.Service {
	f := *c
	f.Discover, f.Endpoints, f.Check = "", nil, config.Check{}
	f.Policy, f.LB, f.Outlier = config.Policy{}, config.LB{Subset: c.LB.Subset}, config.Outlier{}
	f.ConnectTimeout, f.IdleTimeout, f.MaxPending, f.MaxQueue = 0, 0, 0, 0
	f.Breaker, f.RateLimit = config.Breaker{}, config.RateLimit{}
	f.MaxConcurrency = min(c.MaxConcurrency, 1) // whether there is a limit, and who sets it
	return f
}

// limitSlots applies the limits of slots and queue.
func (m *member) limitSlots() {
	m.slots.maxQueue.Store(int32(m.cfg.MaxQueue))
	if m.slots.auto == nil {
		m.slots.limit.Store(int32(m.cfg.MaxConcurrency))
	}
}

// prepare makes the service on the loop of w.
func (m *member) prepare(w *shard, zone string, speaks connectors) {
	m.loops[w.index].Store(newService(w, zone, speaks, *m))
}

// follow returns the service on the loop of w, which works by m from then on.
func (m *member) follow(w *shard) *service {
	s := m.loops[w.index].Load()
	s.tune(*m)
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

// tune takes over what a configuration says of a service that is already there.
func (s *service) tune(m member) {
	s.cfg, s.bounds = m.cfg, m.bounds
	s.set.Policy = lb.Policies[s.cfg.LB.Policy]
	s.set.SlowStart = s.cfg.LB.SlowStart
	s.set.Panic = s.cfg.LB.Panic
	s.set.Outlier = lb.Outlier{
		Consecutive: s.cfg.Outlier.Consecutive,
		SuccessRate: s.cfg.Outlier.SuccessRate,
		Latency:     float64(s.cfg.Outlier.Latency),
		Base:        s.cfg.Outlier.Base,
		MaxEjected:  s.cfg.Outlier.MaxEjected,
	}
	s.set.Retune()
	s.stallNext = 0
	s.giveFree()
}

// retire has the service end: what is in flight goes on, and its connections close
// when they carry nothing more.
func (s *service) retire() {
	for i := range s.set.Len() {
		s.set.At(i).Ext.(*endpoint).up.retire()
	}
}

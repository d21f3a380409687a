package service

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/registry"
)

// SharedService is the part of a service that all loops share. It stays through
// reloads that change only settings outside identityOf.
type SharedService struct {
	Name   string
	Key    string             // of connections to it, see loop.Destined; unique in the process
	tls    *config.ServiceTLS // part of identityOf
	wire   []byte             // the name, as it is sent
	subset int                // lb.subset

	loops      []atomic.Pointer[Service] // by shard.Index; each loop sets its own
	snapshot   atomic.Pointer[registry.Snapshot]
	pending    atomic.Int32 // exchanges in flight
	streams    atomic.Int32 // open race.Streams
	slots      limit.Slots
	lastAnswer atomic.Int64 // when an endpoint last responded, on the loops' clock
	periodic   atomic.Int32 // loops that know a period of stalls

	// own counts this process's attempts at each address, for the "reported by others" of
	// least_pending. Update alone touches the map; loops get the counters with the snapshot.
	own map[string]*atomic.Int32
}

// made is the number of SharedServices so far.
var made atomic.Uint64

func newSharedService(c *config.Service, loops int) *SharedService {
	s := &SharedService{
		Name: c.Name, Key: fmt.Sprintf("%s#%d", c.Name, made.Add(1)), tls: &c.TLS, wire: []byte(c.Name),
		subset: c.LB.Subset, loops: make([]atomic.Pointer[Service], loops),
	}
	if c.MaxConcurrency == config.MaxConcurrencyAuto {
		s.slots.Auto = limit.NewAuto(&s.slots.Limit)
	}
	return s
}

// InFlight is the number of exchanges and streams in flight.
func (s *SharedService) InFlight() int { return int(s.pending.Load() + s.streams.Load()) }

// SlotsInUse is how many slots are in use, and how many requests wait for one.
func (s *SharedService) SlotsInUse() (used, queued int) {
	return int(s.slots.InUse.Load()), int(s.slots.Waiting.All())
}

// SlotLimit is how many slots there are now; 0 means no limit.
func (s *SharedService) SlotLimit() int { return int(s.slots.Limit.Load()) }

// Newest is the latest snapshot given to Update, or nil.
func (s *SharedService) Newest() *registry.Snapshot { return s.snapshot.Load() }

// Known reports whether every loop has applied some snapshot.
func (s *SharedService) Known() bool {
	for i := range s.loops {
		if at := s.loops[i].Load(); at != nil && !at.known.Load() {
			return false
		}
	}
	return true
}

// Update gives every loop a new snapshot of the service's endpoints. It may be
// called from any goroutine, one at a time. Snapshots may overtake each other on the
// way to a loop, so a loop ignores an older one. node seeds lb.subset.
func (s *SharedService) Update(snap *registry.Snapshot, node string) {
	targets := make([]lb.Target, 0, len(snap.Endpoints))
	for _, e := range snap.Endpoints {
		if !e.Down {
			targets = append(targets, lb.Target{Addr: e.Addr, Host: e.Host, Zone: e.Zone, Weight: float64(e.Weight), Unhealthy: e.Unhealthy})
		}
	}
	// Not on the loops: ranking a thousand takes a millisecond.
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
			at.Shard.Loop.Post(func() { at.apply(snap, targets, own) })
		}
	}
}

// Member is a service of a generation.
type Member struct {
	*SharedService
	cfg    *config.Service
	bounds *Bounds
}

// NewMember makes the member for c. It keeps the SharedService of old, its member in
// the generation before, unless their identities differ.
func NewMember(c *config.Service, old Member, loops int) Member {
	m := Member{SharedService: old.SharedService, cfg: c, bounds: newBounds(c)}
	if old.cfg == nil || !reflect.DeepEqual(identityOf(old.cfg), identityOf(c)) {
		m.SharedService = newSharedService(c, loops)
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

// identityOf is c reduced to the settings that a reload can't change in place. If it
// changes, c is another service of the same name, and the old one drains.
func identityOf(c *config.Service) config.Service {
	f := *c
	f.Discover, f.Endpoints, f.Check = "", nil, config.Check{}
	f.Policy, f.LB, f.Outlier = config.Policy{}, config.LB{Subset: c.LB.Subset}, config.Outlier{}
	f.ConnectTimeout, f.IdleTimeout, f.MaxPending, f.MaxQueue, f.Opaque, f.TimeoutHeader = 0, 0, 0, 0, false, false
	f.Breaker, f.RateLimit, f.Allow = config.Breaker{}, config.RateLimit{}, config.Allow{}
	f.MaxConcurrency = min(c.MaxConcurrency, 1) // only whether there is a limit, and whether it is automatic
	return f
}

// LimitSlots applies the limits of the slots and of their queue.
func (m *Member) LimitSlots() {
	m.slots.MaxQueue.Store(int32(m.cfg.MaxQueue))
	if m.slots.Auto == nil {
		m.slots.Limit.Store(int32(m.cfg.MaxConcurrency))
	}
}

// Prepare makes the service of the loop of w.
func (m *Member) Prepare(w *shard.Shard, zone string, speaks Protocols) {
	m.loops[w.Index].Store(newService(w, zone, speaks, *m))
}

// Follow returns the service of the loop of w and applies the settings of m.
func (m *Member) Follow(w *shard.Shard) *Service {
	s := m.loops[w.Index].Load()
	s.Configure(*m)
	return s
}

// Bounds are what one configuration allows a service, over all loops.
type Bounds struct {
	maxPending int32
	unreserved int32          // places of maxPending that every request may take
	rate       *limit.Rate    // nil means no limit
	breaker    *limit.Breaker // nil means no breaker
}

// reservedPart is the part of max_pending that is for connections with one request, as a divisor.
const reservedPart = 8

func newBounds(c *config.Service) *Bounds {
	most := int32(c.MaxPending)
	b := &Bounds{maxPending: most, unreserved: most - most/reservedPart}
	if c.RateLimit.Rate > 0 {
		b.rate = limit.NewRate(&c.RateLimit)
	}
	if c.Breaker.Consecutive > 0 {
		b.breaker = limit.NewBreaker(&c.Breaker)
	}
	return b
}

// Passage is the way of a request or stream past the bounds of a service. The zero value has passed none.
type Passage struct {
	bounds  *Bounds
	permit  limit.Permit  // of the breaker in bounds
	counted *atomic.Int32 // of the service: pending, or streams; nil means neither

	Alone bool // its connection has no other request at the service; see Bounds.place
}

// Claimant is a request that asks for a place in max_pending.
type Claimant interface {
	// Concurrency counts the requests of the claimant's connection that are in flight at the service, the
	// claimant included. The count may end at most. 0 means that no connection waits for the claimant.
	Concurrency(most int) int
}

// Pass lets the request of c pass the bounds of the service by p. Without a Failure the request counts against
// max_pending until Leave, and its outcome must be judged.
func (s *Service) Pass(p *Passage, now time.Duration, batch bool, c Claimant) (f *fault.Failure) {
	if !s.bounds.takeToken(now) {
		return fault.RateLimited
	}
	b, n := s.bounds, s.shared.pending.Add(1)
	ok, alone := b.place(n, batch, c)
	if !ok {
		s.shared.pending.Add(-1)
		return fault.Overloaded
	}
	p.bounds, p.counted, p.Alone = b, &s.shared.pending, alone
	if p.permit, f = s.bounds.allow(now); f != nil {
		p.Leave()
	}
	return f
}

// Refuses returns why Pass would refuse the request of c now, or nil. It takes nothing from the bounds.
func (s *Service) Refuses(now time.Duration, batch bool, c Claimant) *fault.Failure {
	b := s.bounds
	if b.rate != nil && !b.rate.Has(now) {
		return fault.RateLimited
	}
	ok, _ := b.place(s.shared.pending.Load()+1, batch, c)
	switch {
	case !ok:
		return fault.Overloaded
	case b.breaker != nil && b.breaker.Refuses(now):
		return fault.BreakerOpen
	}
	return nil
}

// PassStream is Pass for a stream, for which max_pending does not count.
func (s *Service) PassStream(p *Passage, now time.Duration) (f *fault.Failure) {
	if !s.bounds.takeToken(now) {
		return fault.RateLimited
	}
	s.AdoptStream(p)
	p.bounds = s.bounds
	if p.permit, f = s.bounds.allow(now); f != nil {
		p.Leave()
	}
	return f
}

// AdoptStream is PassStream for a stream whose request has passed.
func (s *Service) AdoptStream(p *Passage) {
	s.shared.streams.Add(1)
	p.counted = &s.shared.streams
}

// Judge gives a verdict, once, to the breaker that let the request pass, if there is one.
func (p *Passage) Judge(now time.Duration, v fault.Verdict) {
	if p.permit != limit.NoPermit {
		p.bounds.breaker.Record(now, p.permit, v)
		p.permit = limit.NoPermit
	}
}

// Leave ends the request or stream: it is not in flight any more. A second call changes nothing.
func (p *Passage) Leave() {
	if p.counted != nil {
		p.counted.Add(-1)
		p.counted = nil
	}
}

// Probes reports whether the breaker waits for the verdict of this request.
func (p *Passage) Probes() bool { return p.permit == limit.ProbePermit }

// Transfer gives the verdict that a free breaker is owed to the stream that the response becomes.
func (p *Passage) Transfer(to *Passage) {
	if p.permit == limit.FreePermit {
		to.bounds, to.permit, p.permit = p.bounds, p.permit, limit.NoPermit
	}
}

// place reports whether the request of c, the last of so many pending ones, gets a place in max_pending. The places beyond
// unreserved are for connections with one request at the service: otherwise a few connections with many requests would
// shut out all others. A connection that has all pending requests shuts out nobody, and gets these places, too.
//
// alone reports whether the connection of c has no other request at the service. It is false while fewer than half of the
// unreserved places are taken. The next sidecar, which is told of it, may have more requests in flight than this one.
// That is why alone is found out before it matters here.
func (b *Bounds) place(pending int32, batch bool, c Claimant) (ok, alone bool) {
	switch {
	case batch:
		return pending <= half(b.maxPending), false
	case pending <= b.unreserved/2:
		return true, false
	}
	most := 2 // whether there is another
	if pending > b.unreserved {
		most = int(pending)
	}
	own := c.Concurrency(most)
	alone = own == 1
	return pending <= b.unreserved || pending <= b.maxPending && (alone || own >= int(pending)), alone
}

func (b *Bounds) takeToken(now time.Duration) bool { return b.rate == nil || b.rate.Take(now) }

// allow asks the breaker.
func (b *Bounds) allow(now time.Duration) (limit.Permit, *fault.Failure) {
	if b.breaker == nil {
		return limit.NoPermit, nil
	}
	p := b.breaker.Allow(now)
	if p == limit.NoPermit {
		return p, fault.BreakerOpen
	}
	return p, nil
}

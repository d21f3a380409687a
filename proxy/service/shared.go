package service

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/registry"
)

// SharedService is the part of a service that all loops share. It stays through
// reloads that change only settings outside identityOf.
type SharedService struct {
	Name   string
	Key    string             // of connections to it, see loop.Destined; unique in the process
	TLS    *config.ServiceTLS // part of identityOf
	Wire   []byte             // the name, as it is sent
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
		Name: c.Name, Key: fmt.Sprintf("%s#%d", c.Name, made.Add(1)), TLS: &c.TLS, Wire: []byte(c.Name),
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
	if old.cfg == nil || !reflect.DeepEqual(identityOf(old.cfg), identityOf(c)) {
		shared := newSharedService(c, loops)
		return Member{SharedService: shared, cfg: c, bounds: newBounds(c, shared)}
	}
	m := Member{SharedService: old.SharedService, cfg: c, bounds: newBounds(c, old.SharedService)}
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
	f.Discover, f.Combine, f.Endpoints, f.Check = nil, "", nil, config.Check{}
	f.Policy, f.LB, f.Outlier = config.Policy{}, config.LB{Subset: c.LB.Subset}, config.Outlier{}
	f.ConnectTimeout, f.IdleTimeout, f.MaxPending, f.MaxQueue, f.Opaque, f.TimeoutHeader, f.Probe = 0, 0, 0, 0, false, false, ""
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

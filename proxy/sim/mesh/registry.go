package mesh

import (
	"time"

	"github.com/remora-proxy/remora/registry"
)

// registryService is the emulated etcd: who is registered, and who has heard.
// Each consumer hears of each change after a delay of its own.
type registryService struct {
	m       *mesh
	members []bool // by provider
	delays  []time.Duration
	lost    bool // nothing is heard
	missed  bool // something changed meanwhile
}

func newRegistry(m *mesh) registryService {
	r := registryService{m: m, members: make([]bool, m.spec.Providers)}
	rnd := m.random(forNews, 0)
	for range m.spec.Consumers {
		r.delays = append(r.delays, m.spec.NewsMin+time.Duration(rnd.Int64N(int64(m.spec.NewsMax-m.spec.NewsMin)+1)))
	}
	return r
}

// join registers a provider.
func (r *registryService) join(p *provider) { r.set(p, true) }

// leave withdraws one.
func (r *registryService) leave(p *provider) { r.set(p, false) }

func (r *registryService) set(p *provider, member bool) {
	if r.members[p.index] == member {
		return
	}
	r.members[p.index] = member
	if r.missed = true; !r.lost {
		r.announce()
	}
}

// expire has a provider that died leave when its lease is over.
func (r *registryService) expire(p *provider) {
	life := p.lives
	r.m.w.At(r.m.w.Now()+r.m.spec.Lease, func() {
		if p.lives == life && p.down {
			r.leave(p)
		}
	})
}

// down loses the registry; up brings it back, with what happened meanwhile.
func (r *registryService) down() { r.lost = true }

func (r *registryService) up() {
	if r.lost = false; r.missed {
		r.announce()
	}
}

// announce sends the present endpoints to every consumer.
func (r *registryService) announce() {
	r.missed = false
	snaps := r.snapshots()
	for i, c := range r.m.consumers {
		r.m.w.At(r.m.w.Now()+r.delays[i], func() {
			if !c.down {
				c.hear(snaps[i%len(snaps)])
			}
		})
	}
}

// tell gives a consumer that starts the present endpoints: those of its cache
// when the registry is lost.
func (r *registryService) tell(c *consumer) {
	snaps := r.snapshots()
	c.hear(snaps[c.index%len(snaps)])
}

// snapshots are what consumers are told: each of them uses one loop of every
// provider, so there is a snapshot for each loop.
func (r *registryService) snapshots() []*registry.Snapshot {
	var snaps []*registry.Snapshot
	for loop := range r.m.spec.Loops {
		var endpoints []registry.Endpoint
		for i, member := range r.members {
			if member {
				endpoints = append(endpoints, registry.Endpoint{Addr: r.m.providers[i].addr(loop), Weight: r.m.spec.weight(i)})
			}
		}
		snaps = append(snaps, registry.NewSnapshot("compute", registry.SourceLive, epoch, endpoints))
	}
	return snaps
}

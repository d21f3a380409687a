package mesh

import (
	"time"

	"github.com/remora-proxy/remora/registry"
)

// registryService is the emulated etcd. Each consumer gets each change after a delay of its
// own.
type registryService struct {
	m       *mesh
	members []bool // by provider
	delays  []time.Duration
	lost    bool // no change reaches a consumer
	missed  bool // there was a change meanwhile
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

// leave removes a provider.
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

// expire removes a crashed provider when its lease ends.
func (r *registryService) expire(p *provider) {
	life := p.lives
	r.m.w.At(r.m.w.Now()+r.m.spec.Lease, func() {
		if p.lives == life && p.down {
			r.leave(p)
		}
	})
}

// down stops the registry; up starts it again, with the changes made meanwhile.
func (r *registryService) down() { r.lost = true }

func (r *registryService) up() {
	if r.lost = false; r.missed {
		r.announce()
	}
}

// announce sends the current endpoints to every consumer.
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

// tell sends the current endpoints to a consumer that starts. While the registry is down,
// this emulates the consumer's cache.
func (r *registryService) tell(c *consumer) {
	snaps := r.snapshots()
	c.hear(snaps[c.index%len(snaps)])
}

// snapshots returns the snapshots for consumers. A consumer uses one loop of every provider,
// so there is a snapshot for each loop.
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

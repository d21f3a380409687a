package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/log2"
	"github.com/remora-proxy/remora/lb/probe"
	"github.com/remora-proxy/remora/lb/spare"
)

// reviewEvery is how often old records expire and endpoints are compared. TestConstants shows what happens at twice and at half.
var reviewEvery = time.Second

// peers is what is known of the endpoints of a set only together, and is kept up to date as time passes. Each part
// has one job; a part that needs the endpoints is given them.
type peers struct {
	groups

	reports      reports      // the load that they report
	health       health       // which are ejected, and which are avoided
	ramps        ramps        // whose weight grows
	utilizations utilizations // what they say they could serve
	pace         pace         // of all endpoints
	curve        spare.Curve  // likewise

	loops    int // of this process that use the endpoints
	reviewAt time.Duration
}

// hold makes p the peers of these endpoints, of which added are new. own is the zone of this process.
func (p *peers) hold(list, added []*Endpoint, own string) {
	p.form(list, own)
	p.health.reserve(len(list))
	p.ramps.start(added, list)
	p.weigh()
	p.health.limit(&p.groups)
}

// refresh drops what is too old at the time now.
func (p *peers) refresh(now time.Duration) {
	if p.reports.due(now) {
		p.reports.expire(now, p.all.endpoints)
	}
	if p.ramps.due(now) {
		p.ramps.grow(now, p.all.endpoints)
		p.weigh()
	}
	if now >= p.reviewAt {
		p.review(now)
	}
}

// review expires old records, so that an endpoint avoided for its failures is picked again
// once they are old, and compares the endpoints.
func (p *peers) review(now time.Duration) {
	p.reviewAt = now + reviewEvery
	for _, e := range p.all.endpoints {
		e.record.Expire(now)
		e.discount = e.record.Discount()
	}
	for i, e := range p.all.endpoints {
		e.excess.review(now, &e.record, i, p.all.endpoints)
	}
	if p.utilizations.any {
		p.utilizations.compare(now, p.all.endpoints)
		p.weigh()
	}
	p.health.ejectSlow(now, &p.groups)
}

// restored notes that e is ejected no longer. e may have been restarted, so its slow start begins again.
func (p *peers) restored(e *Endpoint) {
	p.ramps.start([]*Endpoint{e}, p.all.endpoints)
	p.weigh()
}

// traffic is what is known of the load of the endpoints.
func (p *peers) traffic() probe.Traffic {
	t := probe.Traffic{Endpoints: len(p.all.endpoints), Known: p.reports.n > 0}
	if t.Known {
		weight := 0.0
		for _, e := range p.all.endpoints {
			weight += e.Weight
		}
		t.Others = p.reports.others / float64(p.reports.n) * weight / float64(t.Endpoints)
	}
	if p.pace.samples > 0 {
		t.Latency = time.Duration(log2.Exp(p.pace.mean))
	}
	return t
}

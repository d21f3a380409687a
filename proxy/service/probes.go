package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/probe"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Prober is Connections that can ask an endpoint for its load.
type Prober interface {
	// Probe sends a probe, unless one is on the way already, and reports whether an answer may come. A probe never waits: it
	// is dropped if earlier output does, or if no connection is open. Then Probe opens one.
	Probe() bool
}

// Probes asks endpoints of a service for their load, for one loop with sparse traffic. Attempts ask for a pick (Pick).
// Upstreams say what was answered (Answered).
//
// An attempt whose endpoint the fresh answers decide does not wait. Otherwise it waits until enough of the endpoints that
// were asked have answered, or for as long as probe.WaitOf says. Any answers will do, so attempts end their waits in order.
type Probes struct {
	// On reports whether traffic is sparse. It is the only thing that a busy loop looks at.
	On bool

	service  *Service
	sparse   probe.Sparse
	pool     probe.Pool[*lb.Endpoint]
	patience probe.Patience
	asked    [probe.Asked]*lb.Endpoint // scratch of Pick
	answers  uint64                    // so far
	waiting  fifo.Queue[*ProbeWait]
	last     uint64     // ProbeWait.until of the last in waiting
	timer    loop.Timer // armed for the first in waiting
}

// ProbeWait is the wait of one attempt for answers.
type ProbeWait struct {
	asker Asker
	node  fifo.Node[*ProbeWait]
	until uint64 // how many answers must have come
}

// Asker is an attempt that may wait for answers.
type Asker interface {
	// Answered is called when the wait is over, with or without answers.
	Answered()
}

// Init makes w the wait of a.
func (w *ProbeWait) Init(a Asker) { w.asker = a }

// Withdraw ends the wait, without a call of Answered.
func (w *ProbeWait) Withdraw() { w.node.Remove() }

func (p *Probes) init(s *Service) { p.service, p.timer.Fire = s, p.onTimer }

// refresh decides anew whether traffic is sparse.
func (p *Probes) refresh(now time.Duration) {
	s := p.service
	if s.Config.Probe == config.ProbeOff || !lb.ComparesLoad(s.Set.Policy) {
		p.On = false
		return
	}
	t := s.Set.Traffic()
	t.Requests = s.Stats.Requests
	p.sparse.Observe(now, &t)
	p.On = p.sparse.On() || s.Config.Probe == config.ProbeOn
}

// Pick picks by answers to probes, and sends the next probes. It returns nil if Service.Pick must pick instead. waits
// reports whether the attempt waits for answers: then Asker.Answered is called, and Best picks.
func (p *Probes) Pick(w *ProbeWait, q *lb.Query) (e *lb.Endpoint, waits bool) {
	s := p.service
	s.stalls.keepFresh(q.Now)
	if !p.On || !s.Set.Askable(q.Now) {
		return nil, false
	}
	if p.pool.Enough(q.Now, s.Set.Len()) {
		e = p.Best(q)
	}
	coming := p.ask(q)
	if e != nil || coming < 2 || !p.patience.Waits() {
		return e, false
	}
	if p.waiting.Empty() {
		p.last = 0
	}
	w.until = max(p.last, p.answers+uint64(min(coming, probe.Default.Enough)))
	p.last = w.until
	p.waiting.Add(&w.node, w, q.Now)
	if !p.timer.Armed() {
		s.Shard.Loop.After(p.wait(), &p.timer)
	}
	return nil, true
}

// ask sends probes, and returns how many answers may come.
func (p *Probes) ask(q *lb.Query) (coming int) {
	asked := p.service.Set.Sample(q, p.asked[:])
	for _, e := range asked {
		if to, ok := e.Ext.(*Endpoint).Upstream().(Prober); ok && to.Probe() {
			coming++
		}
	}
	clear(asked)
	return coming
}

// Best returns the best endpoint of those that have answered, or nil.
func (p *Probes) Best(q *lb.Query) *lb.Endpoint {
	e, _ := p.pool.Take(func(e *lb.Endpoint) bool { return p.service.Set.MayPick(q, e) })
	return e
}

// Answered takes the load that e has answered.
func (p *Probes) Answered(e *lb.Endpoint, l lb.Load) {
	now := p.service.Shard.Loop.Now()
	p.service.Stats.Probes.Answers++
	p.service.HeardLoad(now, e, l)
	p.pool.Add(e.Answer(now, l))
	p.answers++
	for w := p.waiting.First(); w != nil && w.until <= p.answers; w = p.waiting.First() {
		p.patience.Answered()
		p.service.Stats.Probes.Waits++
		p.end()
	}
}

// end ends the first wait.
func (p *Probes) end() {
	w := p.waiting.Pop()
	if p.waiting.Empty() {
		p.service.Shard.Loop.Stop(&p.timer)
	}
	w.asker.Answered()
}

// wait returns how long an attempt waits at most.
func (p *Probes) wait() time.Duration { return probe.WaitOf(p.service.Set.Traffic().Latency) }

// onTimer ends the waits that have lasted too long.
func (p *Probes) onTimer() {
	s, now, most := p.service, p.service.Shard.Loop.Now(), p.wait()
	for !p.waiting.Empty() {
		if left := p.waiting.Since() + most - now; left > 0 {
			s.Shard.Loop.After(left, &p.timer)
			return
		}
		p.patience.InVain()
		s.Stats.Probes.Waits++
		s.Stats.Probes.InVain++
		p.end()
	}
}

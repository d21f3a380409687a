package mesh

import "time"

// schedule schedules the events of the Spec.
func (m *mesh) schedule() {
	if m.spec.Breaks > 0 || m.spec.Bandwidth > 0 {
		m.heldUp(0)
	}
	for _, e := range m.spec.Events {
		m.plan(e, e.At)
	}
	if m.spec.StallEvery > 0 {
		for i, p := range m.providers {
			rnd := m.random(forStalls, i)
			for at := time.Duration(0); ; at += m.spec.StallFor {
				at += time.Duration(rnd.ExpFloat64() * float64(m.spec.StallEvery))
				if at >= m.spec.Duration {
					break
				}
				m.w.At(at, func() { p.app.stall(m.spec.StallFor) })
			}
		}
	}
}

// plan schedules e at the time at, and then its repetitions.
func (m *mesh) plan(e Event, at time.Duration) {
	if at >= m.spec.Duration {
		return
	}
	m.w.At(at, func() {
		m.perform(e)
		if e.Every > 0 {
			m.plan(e, at+e.Every)
		}
	})
}

func (m *mesh) perform(e Event) {
	switch {
	case e.Action == EtcdDown:
		m.registry.down()
		m.after(e.For, m.registry.up)
	case e.Action == LoadBy:
		m.load(e.Factor)
		m.after(e.For, func() { m.load(1) })
	case e.Action == Roll:
		m.roll(e.For)
	case e.Target.Kind == TargetConsumer:
		for i, c := range m.consumers {
			if e.Target.Index == 0 || e.Target.Index == i+1 {
				m.troubleConsumer(e, c)
			}
		}
	default:
		for i, p := range m.providers {
			if e.Target.Index == 0 || e.Target.Index == i+1 {
				m.troubleProvider(e, p)
			}
		}
	}
}

// after runs f after d, or never if d is 0. It does nothing after the end of the load, when
// all faults are repaired.
func (m *mesh) after(d time.Duration, f func()) {
	if d > 0 {
		m.w.At(m.w.Now()+d, func() {
			if !m.over {
				f()
			}
		})
	}
}

// heldUp records that sidecars' output may be delayed for d, or to the end of the load if d
// is 0. The delayed output still arrives after that.
func (m *mesh) heldUp(d time.Duration) {
	until := m.w.Now() + d
	if d == 0 {
		until = max(m.w.Now(), m.spec.Duration)
	}
	m.troubled = max(m.troubled, until+10*grace)
}

func (m *mesh) load(factor float64) {
	m.loadBy = factor
	for _, c := range m.callers {
		c.loop.Post(c.arrive)
	}
}

func (m *mesh) troubleConsumer(e Event, c *consumer) {
	m.heldUp(e.For)
	switch e.Action {
	case Kill:
		if !c.down {
			c.crash()
			m.after(e.For, c.revive)
		}
	case Pause:
		c.pause(e.For)
	}
}

func (m *mesh) troubleProvider(e Event, p *provider) {
	switch e.Action {
	case Stall:
		p.app.stall(e.For)
		return
	case Slow:
		p.app.slow = e.Factor
		m.after(e.For, func() { p.app.slow = 1 })
		return
	case Fail:
		p.app.failing = true
		m.after(e.For, func() { p.app.failing = false })
		return
	}
	m.heldUp(e.For)
	switch e.Action {
	case PartitionTo, PartitionFrom:
		m.heldUp(2 * e.For) // connections resume later
		p.partition(e.Action == PartitionTo)
		m.after(e.For, p.heal)
	case Kill:
		m.kill(p, e.For, (*sidecar).crash)
	case Vanish:
		m.kill(p, e.For, (*sidecar).vanish)
	case Start:
		p.revive()
	case Drain:
		p.drain()
		m.after(e.For, p.revive)
	case KillApp:
		p.app.crash()
		m.after(e.For, p.revive)
	case Pause:
		p.pause(e.For)
	case Reset:
		for _, c := range m.consumers {
			m.w.Faults.ResetAll(c.host, p.called())
		}
	}
}

func (m *mesh) kill(p *provider, d time.Duration, end func(s *sidecar)) {
	if !p.down {
		p.stop(end)
		m.registry.expire(p)
		m.after(d, p.revive)
	}
}

// roll restarts the providers one after another: each drains for half of d, is
// down for the rest, and has d to settle.
func (m *mesh) roll(d time.Duration) {
	for i, p := range m.providers {
		begin := time.Duration(i) * 2 * d
		m.heldUp(begin + d)
		m.after(max(1, begin), p.drain)
		m.after(begin+d/2, func() { p.stop((*sidecar).crash) })
		m.after(begin+d, p.revive)
	}
}

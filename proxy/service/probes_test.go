package service

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/probe"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// asker is an attempt that notes when its wait is over.
type asker struct {
	ProbeWait
	on   *sim.Loop
	over []time.Duration
}

func (a *asker) Answered() { a.over = append(a.over, a.on.Now()) }

// TestProbeWaits: each attempt waits for its own time at most, or until enough have answered. One that is withdrawn hears nothing.
func TestProbeWaits(t *testing.T) {
	const wait, between = time.Millisecond, 400 * time.Microsecond
	for name, c := range map[string]struct {
		early    int // answers after the first attempt has begun to wait
		answers  int // at once after the last attempt has begun to wait
		withdrew int // index of an attempt that is withdrawn then; -1 means none
		want     []time.Duration
		inVain   uint64
	}{
		"no answer":            {0, 0, -1, []time.Duration{wait, between + wait, 2*between + wait}, 3},
		"one withdrawn":        {0, 0, 1, []time.Duration{wait, 0, 2*between + wait}, 2},
		"first withdrawn":      {0, 0, 0, []time.Duration{0, between + wait, 2*between + wait}, 2},
		"one answer less":      {0, probe.Default.Enough - 1, -1, []time.Duration{wait, between + wait, 2*between + wait}, 3},
		"enough answers":       {0, probe.Default.Enough, -1, []time.Duration{2 * between, 2 * between, 2 * between}, 0},
		"enough for the first": {1, probe.Default.Enough - 1, -1, []time.Duration{2 * between, between + wait, 2*between + wait}, 2},
	} {
		world := sim.New(1)
		l := world.Loop("a")
		var s *Service
		var began time.Duration
		var attempts []*asker
		l.Do(func() {
			of := &shard.Process{Loops: 1}
			settings := config.DefaultService("s")
			settings.Probe = config.ProbeOn
			m := NewMember(settings, Member{}, 1)
			w := shard.New(of, 0, l, slog.New(slog.DiscardHandler), 1)
			w.Configure(config.Default())
			m.Prepare(w, "", nil)
			s = m.Follow(w)
			withEndpoints(s, &noConnections{}, &noConnections{}, &noConnections{}, &noConnections{})
			began = l.Now()
		})
		for i := range 3 {
			if i > 0 {
				world.Run(between)
			}
			l.Do(func() {
				a := &asker{on: l}
				a.Init(a)
				q := s.Query(0, nil)
				if e, waits := s.Probes.Pick(&a.ProbeWait, &q); e != nil || !waits {
					t.Fatalf("%s: attempt %d waits: %t", name, i, waits)
				}
				if attempts = append(attempts, a); i == 0 {
					for n := range c.early {
						s.Probes.Answered(s.Set.At(n), lb.Load{})
					}
				}
			})
		}
		l.Do(func() {
			if c.withdrew >= 0 {
				attempts[c.withdrew].Withdraw()
			}
			for i := range c.answers {
				s.Probes.Answered(s.Set.At(i), lb.Load{})
			}
			q := s.Query(0, nil)
			if e := s.Probes.Best(&q); (e != nil) != (c.early+c.answers > 0) {
				t.Errorf("%s: the best endpoint is %v", name, e)
			}
		})
		world.Run(time.Second)
		var got []time.Duration
		waits := uint64(0)
		for i, a := range attempts {
			switch len(a.over) {
			case 0:
				got = append(got, 0)
			case 1:
				got = append(got, (a.over[0] - began).Truncate(10*time.Microsecond))
				waits++
			default:
				t.Errorf("%s: attempt %d has heard %d times", name, i, len(a.over))
			}
		}
		if n := s.Stats.Probes; !slices.Equal(got, c.want) || n.Waits != waits || n.InVain != c.inVain || n.Answers != uint64(c.early+c.answers) {
			t.Errorf("%s: waited %v, want %v; counted %+v", name, got, c.want, n)
		}
	}
}

// calm is an attempt for which the end of its wait changes nothing.
type calm struct{}

func (calm) Answered() {}

// TestProbesOfFew: an attempt waits if two endpoints may answer: there is a choice.
func TestProbesOfFew(t *testing.T) {
	s, l := newTestService(t)
	settings := *s.Config
	settings.Probe = config.ProbeOn
	s.Configure(Member{SharedService: s.Shared, cfg: &settings, bounds: s.Bounds})
	a, b := &noConnections{}, &noConnections{}
	withEndpoints(s, a, b)
	var w ProbeWait
	w.Init(calm{})
	q := s.Query(0, nil)
	if e, waits := s.Probes.Pick(&w, &q); e != nil || !waits || a.probes != 1 || b.probes != 1 {
		t.Errorf("picked %v, waits %t, %d and %d probes", e, waits, a.probes, b.probes)
	}
	if _, armed := l.timers[&s.Probes.timer]; !armed {
		t.Error("the wait has no end")
	}
	for i := range 2 {
		s.Probes.Answered(s.Set.At(i), lb.Load{})
	}
	if _, armed := l.timers[&s.Probes.timer]; armed {
		t.Error("the timer is armed, and nobody waits")
	}
}

// TestProbesOn: the setting decides whether endpoints are asked, and a policy that compares no load asks none.
func TestProbesOn(t *testing.T) {
	for _, c := range []struct {
		setting, policy string
		want            bool
	}{
		{config.ProbeOn, "least_pending", true}, {config.ProbeOff, "least_pending", false}, {config.ProbeOn, "random", false}, {config.ProbeAuto, "least_pending", false},
	} {
		s, l := newTestService(t)
		withEndpoints(s, nil, nil)
		s.Config.Probe, s.Set.Policy = c.setting, lb.PolicyOf(c.policy)
		s.Probes.On = !c.want
		if s.Probes.refresh(l.Now()); s.Probes.On != c.want {
			t.Errorf("%s with %s: %t", c.setting, c.policy, s.Probes.On)
		}
	}
}

// TestForgottenAnswers: the answer of an endpoint that has left the service counts no more.
func TestForgottenAnswers(t *testing.T) {
	l := &stillLoop{}
	s := servicesOn(config.Default(), config.DefaultService("s"), []*stillLoop{l})[0]
	s.connectors = Protocols{"": {Connector: func(*Service, *Endpoint) Connections { return &noConnections{} }}}
	s.Shared.Update(snapshotOf("a", "b"), "")
	l.runPosts()
	gone := s.Set.Lookup("a")
	s.Probes.Answered(gone, lb.Load{})
	s.Shared.Update(snapshotOf("b"), "")
	l.runPosts()
	q := s.Query(0, nil)
	if e := s.Probes.Best(&q); e != nil {
		t.Errorf("%s is the best", e.Addr)
	}
}

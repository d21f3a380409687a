package service

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/unwanted"
	"github.com/remora-proxy/remora/registry"
)

// TestSettings: the settings of a service reach its parts, also after a reload.
func TestSettings(t *testing.T) {
	c := config.DefaultService("s")
	s := servicesOn(config.Default(), c, []*stillLoop{{}})[0]
	s.connectors = Protocols{"opaque": {Opaque: true}}
	more := *c
	more.Protocol, more.Cancel = "opaque", config.CancelClose
	more.LB.Policy, more.LB.Hash, more.LB.SlowStart, more.LB.Panic = config.LBConsistentHash, config.Hash{Path: true, Balance: 1.5}, time.Second, 0.3
	more.Outlier = config.Outlier{Consecutive: 3, SuccessRate: 0.4, Latency: 5, Base: time.Minute, MaxEjected: 0.2}
	s.Configure(Member{SharedService: s.Shared, cfg: &more, bounds: s.Bounds})
	if want := (outlier.Rules{Consecutive: 3, SuccessRate: 0.4, Latency: 5, Base: time.Minute, MaxEjected: 0.2}); s.Set.Outlier != want {
		t.Errorf("outlier ejection: %+v", s.Set.Outlier)
	}
	if s.Set.Policy != lb.PolicyOf(config.LBConsistentHash) || s.Set.Balance != 1.5 || s.Set.SlowStart != time.Second || s.Set.PanicThreshold != 0.3 {
		t.Errorf("picks: policy %v, balance %v, slow start %v, panic %v", s.Set.Policy, s.Set.Balance, s.Set.SlowStart, s.Set.PanicThreshold)
	}
	if !s.Opaque || s.Unwanted.Mode != unwanted.Close || s.Unwanted.Loops != 1 || s.Sessions == nil || s.Sessions.Keys == nil {
		t.Errorf("opaque %t, unwanted work %v on %d loops, sessions %v", s.Opaque, s.Unwanted.Mode, s.Unwanted.Loops, s.Sessions)
	}
	if s.Configure(Member{SharedService: s.Shared, cfg: c, bounds: s.Bounds}); s.Opaque || s.Sessions != nil || s.Unwanted.Mode != unwanted.Auto {
		t.Errorf("after a reload: opaque %t, unwanted work %v", s.Opaque, s.Unwanted.Mode)
	}
}

// TestSettingsBeforeFollow: a service has its settings once it is prepared: a snapshot may come before the loop follows the configuration.
func TestSettingsBeforeFollow(t *testing.T) {
	c, l := config.DefaultService("s"), &stillLoop{}
	c.Protocol = "app"
	m := NewMember(c, Member{}, 1)
	w := shard.New(&shard.Process{Loops: 1}, 0, l, nil, 1)
	w.Configure(config.Default())
	m.Prepare(w, "", nil)
	m.Update(snapshotOf("a"), "")
	l.runPosts()
	if e := m.Follow(w).Set.Lookup("a").Ext.(*Endpoint); e.Protocol != "app" {
		t.Errorf("the endpoint has the protocol %q", e.Protocol)
	}
}

// snapshotOf returns a snapshot with these endpoints. The one with the address "down" is down.
func snapshotOf(addrs ...string) *registry.Snapshot {
	var all []registry.Endpoint
	for _, addr := range addrs {
		all = append(all, registry.Endpoint{Addr: addr, Weight: 1, Down: addr == "down"})
	}
	return registry.NewSnapshot("s", registry.SourceLive, time.Unix(1, 0), all)
}

// TestSubset: a process uses as many endpoints as lb.subset says.
func TestSubset(t *testing.T) {
	for subset, want := range map[int]int{0: 8, 3: 3} {
		c, l := config.DefaultService("s"), &stillLoop{}
		c.LB.Subset = subset
		s := servicesOn(config.Default(), c, []*stillLoop{l})[0]
		s.Shared.Update(snapshotOf("a", "b", "c", "d", "e", "f", "g", "h"), "node")
		if l.runPosts(); s.Set.Len() != want {
			t.Errorf("of a subset of %d: %d endpoints", subset, s.Set.Len())
		}
		for i := range s.Set.Len() {
			if e := s.Set.At(i); e.Ext == nil {
				t.Errorf("of a subset of %d: no attempt can go to %s", subset, e.Addr)
			}
		}
	}
}

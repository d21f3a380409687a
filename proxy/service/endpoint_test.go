package service

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// noConnections counts how often it was retired. Its largest connection holds so many bytes.
type noConnections struct {
	retired    int
	probes     int
	silent     bool // Probe reports that no answer will come
	held, each int
	holder     shard.Holder
}

// Probe implements Prober.
func (n *noConnections) Probe() bool {
	n.probes++
	return !n.silent
}

func (n *noConnections) Retire()                             { n.retired++ }
func (*noConnections) Connections() int                      { return 1 }
func (n *noConnections) Largest() (_, _ int, _ shard.Holder) { return n.held, n.each, n.holder }

// TestEndpointLate: an endpoint has no connections and no counts before an attempt, and connections that are made after its
// removal are retired. What was sent by one protocol may end when the endpoint has another.
func TestEndpointLate(t *testing.T) {
	var made []*noConnections
	s := &Service{connectors: Protocols{"": {Connector: func(*Service, *Endpoint) Connections {
		made = append(made, new(noConnections))
		return made[len(made)-1]
	}}}}
	added, _ := s.Set.Update([]lb.Target{{Addr: "a"}})
	e := added[0]
	s.adopt(e, "http")
	first := e.Ext.(*Endpoint)
	if first.connections() != 0 || first.stats != nil || len(made) != 0 {
		t.Errorf("%d connections, counts %v, %d upstreams before an attempt", first.connections(), first.stats, len(made))
	}
	first.CountSent(10, false, false)
	if first.Upstream() != first.Upstream() || len(made) != 1 || first.connections() != 1 {
		t.Errorf("%d upstreams, %d connections", len(made), first.connections())
	}
	s.adopt(e, "link")
	if made[0].retired != 1 {
		t.Errorf("retired %d times after a change of the protocol", made[0].retired)
	}
	second := e.Ext.(*Endpoint)
	second.CountResponse(20)
	second.CountEnd(stats.AttemptServed, time.Millisecond)
	if n := second.stats; n.Outcomes[stats.AttemptServed] != 1 || n.BytesOut != 20 || n.BytesIn != 0 {
		t.Errorf("counts %+v", n)
	}
	second.retire()
	if second.Upstream(); len(made) != 2 || made[1].retired != 1 {
		t.Error("connections that are made after the removal are not retired")
	}
}

// TestLoadOfProcess: the attempts of a loop are load of the endpoint on all loops, through snapshots.
func TestLoadOfProcess(t *testing.T) {
	loops := []*stillLoop{{}, {}}
	services := servicesOn(config.Default(), config.DefaultService("s"), loops)
	update := func(addrs ...string) {
		services[0].Shared.Update(snapshotOf(addrs...), "")
		for _, l := range loops {
			l.runPosts()
		}
	}
	update("a")
	services[0].Set.At(0).Start(loops[0].Now())
	services[0].Shared.Update(snapshotOf("a", "b"), "")
	loops[1].runPosts()
	if n := services[1].Set.Lookup("a").OfProcess(); n != 1 {
		t.Errorf("the load is %d on a loop that has the next snapshot first", n)
	}
	loops[0].runPosts()
	services[0].Set.Lookup("a").Start(loops[0].Now())
	for i, s := range services {
		if a, b := s.Set.Lookup("a").OfProcess(), s.Set.Lookup("b").OfProcess(); a != 2 || b != 0 {
			t.Errorf("loop %d: the load is %d and %d", i, a, b)
		}
	}
}

// TestEndpointCounts: what an endpoint counts of attempts. Only what the application has finished has a latency.
func TestEndpointCounts(t *testing.T) {
	var e Endpoint
	e.CountSent(1, true, false)
	e.CountSent(2, false, true)
	e.CountSent(4, false, false)
	for how := range stats.AttemptOutcome(stats.AttemptOutcomes) {
		e.CountEnd(how, time.Millisecond)
		if e.stats.Outcomes[how] != 1 {
			t.Errorf("%s: counted %d times", how, e.stats.Outcomes[how])
		}
	}
	if s := e.stats; s.Retries != 1 || s.Hedges != 1 || s.BytesIn != 7 || s.Latency.Count() != 2 {
		t.Errorf("%d retries, %d hedges, %d bytes, %d latencies", s.Retries, s.Hedges, s.BytesIn, s.Latency.Count())
	}
}

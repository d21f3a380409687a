package service

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// noConnections counts how often it was retired. Its largest connection holds so many bytes.
type noConnections struct {
	retired    int
	probes     int
	held, each int
	holder     shard.Holder
}

// Probe implements Prober.
func (n *noConnections) Probe() bool {
	n.probes++
	return true
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

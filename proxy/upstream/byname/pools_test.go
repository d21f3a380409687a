package byname

import (
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// countedPool is a pool with connections, of which the largest holds some bytes.
type countedPool struct {
	fakePool
	connections, held int
	holder            shard.Holder
}

func (p *countedPool) Connections() int                    { return p.connections }
func (p *countedPool) Largest() (_, _ int, _ shard.Holder) { return p.held, p.held / 2, p.holder }

// holder is a shard.Holder by name.
type holder string

func (holder) ShedLargest() bool { return false }
func (holder) CloseNow()         {}

// TestPools: what is asked of an endpoint is asked of the pools of all names. Pools that are made after the endpoint has retired
// retire, too.
func TestPools(t *testing.T) {
	made := []*countedPool{{connections: 1, held: 10, holder: holder("a")}, {connections: 2, held: 40}, {connections: 4, held: 30, holder: holder("c")}, {}}
	next := 0
	c := &config.Service{TLS: config.ServiceTLS{SNI: config.SNIHost}}
	s := New(&service.Service{Config: c}, &service.Endpoint{LB: &lb.Endpoint{Addr: "10.0.0.1:443"}}, func(string) Pool {
		next++
		return made[next-1]
	})
	if held, each, h := s.Largest(); s.Connections() != 0 || held != 0 || each != 0 || h != nil {
		t.Errorf("without a pool: %d connections, %v holds %d", s.Connections(), h, held)
	}
	for i, name := range []string{"a.test", "b.test", "c.test", "A.test"} {
		if got := s.For([]byte(name), from(1, 0)); got != Pool(made[i%3]) {
			t.Errorf("%s has another pool", name)
		}
	}
	if n := s.Connections(); n != 7 {
		t.Errorf("%d connections, want 7", n)
	}
	for range 100 { // in any order of the pools
		if held, each, h := s.Largest(); held != 30 || each != 15 || h != holder("c") {
			t.Fatalf("%v holds %d, %d each", h, held, each)
		}
	}
	s.Retire()
	s.For([]byte("late.test"), from(1, 0))
	for i, p := range made {
		if !p.retired {
			t.Errorf("pool %d is not retired", i)
		}
	}
}

package exchange_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestRandomFaults: with many random faults at once in a mesh of sidecars with several
// loops and tiny limits, not every request succeeds. But each has one response or a closed
// connection, no request that is not idempotent is executed twice, hedges and retries stay
// within the budget, and nothing is left over.
func TestRandomFaults(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() || racetest.Enabled { // a single goroutine has no races to detect
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newFaultMesh(t, seed)
			s.run()
			s.check()
		})
	}
}

const faultBudget = 0.2

type faultMesh struct {
	*proxytest.Mesh
	calls    []*proxytest.Call
	once     []*proxytest.Call // requests that are not idempotent
	executed map[string]int
}

func newFaultMesh(t *testing.T, seed uint64) *faultMesh {
	loops := 1 + int(seed%3)
	timeouts := []string{"15ms", "60ms", "500ms"}
	s := &faultMesh{Mesh: proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Loops: loops, OneHop: seed%7 == 6,
		Service: fmt.Sprintf(`timeout: %s, max_pending: 100, connect_timeout: 10ms, max_concurrency: %d, max_queue: 20,
		retry: {attempts: 2, on: [connect, refused, reset, 5xx]},
		hedge: {mode: on, delay: 3ms, budget: %v}`, timeouts[seed%3], seed%2*40, faultBudget),
		Provider: "max_concurrency: 3, max_queue: 6, max_pending: 30, connect_timeout: 10ms",
		Limits:   "limits: {message: 1MiB, buffered: 8MiB}\ntimeouts: {write: 200ms}"})}
	s.executed = s.Apps.CountExecutions()
	rnd := s.W.Rand()
	for _, a := range s.Apps {
		a.Delay = func() time.Duration { return time.Duration(200+rnd.IntN(6000)) * time.Microsecond }
		a.Body = func(req *protocol.Request) []byte {
			if rnd.IntN(20) == 0 {
				return bytes.Repeat([]byte{'y'}, rnd.IntN(1<<20))
			}
			return []byte("short")
		}
	}
	return s
}

// run sends the load and injects the faults.
func (s *faultMesh) run() {
	rnd := s.W.Rand()
	for at := 10 * time.Millisecond; at < 300*time.Millisecond; at += 15 * time.Millisecond {
		s.W.At(at, func() { s.inject(rnd.IntN(12), rnd.IntN(len(s.Apps))) })
	}
	for i := range 24 {
		var calls []*proxytest.Call
		for range 30 {
			size := 300
			if rnd.IntN(20) == 0 {
				size = rnd.IntN(1 << 20)
			}
			if rnd.IntN(2) == 0 {
				calls = append(calls, s.Post(size, "x-remora-idempotent: 1"))
			} else {
				c := s.Post(size)
				calls, s.once = append(calls, c), append(s.once, c)
			}
		}
		cl := &proxytest.Client{By: s.Mesh.Callers, Calls: calls}
		addr := fmt.Sprintf("10.0.0.1:%d", 15001+i%s.Loops)
		s.Clients.Do(func() { s.Clients.Dial(addr, time.Second, cl) })
		if rnd.IntN(3) == 0 { // this client closes in between
			s.W.At(time.Duration(rnd.IntN(300))*time.Millisecond, func() {
				s.Clients.Post(func() {
					if cl.Conn != nil {
						cl.Conn.Close()
					}
				})
			})
		}
		s.calls = append(s.calls, calls...)
	}
	s.Finish(s.calls...)
}

// inject injects a fault of a kind at application i, its sidecar or its endpoints.
func (s *faultMesh) inject(kind, i int) {
	switch {
	case kind < int(proxytest.NumFaults):
		if f := proxytest.Fault(kind); !s.OneHop || f == proxytest.CrashApp || f == proxytest.FreezeApp {
			s.InjectFault(f, i)
		}
	case kind == 6, kind == 7: // the endpoints of an application are removed
		var left []registry.Endpoint
		for j := range s.Apps {
			if j != i {
				left = append(left, s.endpoints(j)...)
			}
		}
		s.Consumer.Update("compute", left...)
	case kind == 8, kind == 9: // all endpoints are registered again
		var all []registry.Endpoint
		for j := range s.Apps {
			all = append(all, s.endpoints(j)...)
		}
		s.Consumer.Update("compute", all...)
	case kind == 10:
		s.Apps[i].Status = 503
		s.W.At(s.W.Now()+20*time.Millisecond, func() { s.Apps[i].Status = 200 })
	case kind == 11 && !s.OneHop:
		p := s.Nodes[i+1]
		for _, stop := range p.Stop {
			stop()
		}
		proc := p.Proc
		proc.Drain()
		s.W.At(s.W.Now()+40*time.Millisecond, func() {
			if p.Proc == proc {
				p.Crash()
				p.Restart(s.Apps[i])
			}
		})
	}
}

// endpoints returns the endpoints of application i: one for each loop of its sidecar.
func (s *faultMesh) endpoints(i int) (eps []registry.Endpoint) {
	e := s.Endpoint(i)
	if s.OneHop {
		return []registry.Endpoint{e}
	}
	for l := range s.Loops {
		e.Addr = fmt.Sprintf("%s:%d", s.Apps[i].Host, 15006+l)
		eps = append(eps, e)
	}
	return eps
}

func (s *faultMesh) check() {
	s.Mesh.CheckExecutedOnce(s.executed, s.once...)
	good := 0
	for _, c := range s.calls {
		switch {
		case c.Status == 200:
			good++
		case c.Err == nil && c.Status != 502 && c.Status != 503 && c.Status != 504:
			s.T.Errorf("call %s: status %d %s", c.Nonce, c.Status, c.Code)
		}
	}
	if good < len(s.calls)/20 {
		s.T.Errorf("only %d of %d calls succeeded", good, len(s.calls))
	}
	s.W.Run(time.Second) // until crashed applications are back
	s.Settled()
	st := s.Consumer.Stats("compute")
	extra := st.Hedges - st.HedgesMissed + st.RetriesPaid
	if limit := faultBudget*float64(st.Requests) + 10; float64(extra) > limit {
		s.T.Errorf("%d hedges (%d missed) and %d paid retries for %d requests, over %.0f",
			st.Hedges, st.HedgesMissed, st.RetriesPaid, st.Requests, limit)
	}
}

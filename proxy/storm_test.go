package proxy_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/registry"
)

// TestStorm lets everything go wrong at once in a mesh of sidecars with several
// loops and tiny limits. Not every request succeeds then, but each has one
// response or a closed connection, none that is not idempotent is executed
// twice, the budget holds, and nothing is left behind.
func TestStorm(t *testing.T) {
	seeds := uint64(40)
	switch {
	case testing.Short():
		seeds = 6
	case raceEnabled:
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newStorm(t, seed)
			s.blow()
			s.check()
		})
	}
}

const stormBudget = 0.2

type storm struct {
	*mesh
	calls    []*call
	once     []*call // those that are not idempotent
	executed map[string]int
}

func newStorm(t *testing.T, seed uint64) *storm {
	loops := 1 + int(seed%3)
	timeouts := []string{"15ms", "60ms", "500ms"}
	s := &storm{mesh: newMesh(t, meshOptions{seed: seed, loops: loops, direct: seed%7 == 6,
		service: fmt.Sprintf(`, timeout: %s, max_pending: 100, connect_timeout: 10ms, max_concurrency: %d, max_queue: 20,
		retry: {attempts: 2, on: [connect, refused, reset, 5xx]},
		hedge: {mode: on, delay: 3ms, budget: %v}`, timeouts[seed%3], seed%2*40, stormBudget),
		provider: ", max_concurrency: 3, max_queue: 6, max_pending: 30, connect_timeout: 10ms",
		limits:   "limits: {message: 1MiB, buffered: 8MiB}\ntimeouts: {write: 200ms}"})}
	s.executed = s.executions()
	rnd := s.w.Rand()
	for _, a := range s.apps {
		a.delay = func() time.Duration { return time.Duration(200+rnd.IntN(6000)) * time.Microsecond }
		a.body = func(req *protocol.Request) []byte {
			if rnd.IntN(20) == 0 {
				return bytes.Repeat([]byte{'y'}, rnd.IntN(1<<20))
			}
			return []byte("short")
		}
	}
	return s
}

// blow runs the load with faults in between.
func (s *storm) blow() {
	rnd := s.w.Rand()
	for at := 10 * time.Millisecond; at < 300*time.Millisecond; at += 15 * time.Millisecond {
		s.w.At(at, func() { s.mishap(rnd.IntN(12), rnd.IntN(len(s.apps))) })
	}
	for i := range 24 {
		var calls []*call
		for range 30 {
			size := 300
			if rnd.IntN(20) == 0 {
				size = rnd.IntN(1 << 20)
			}
			if rnd.IntN(2) == 0 {
				calls = append(calls, s.post(size, "x-remora-idempotent: 1"))
			} else {
				c := s.post(size)
				calls, s.once = append(calls, c), append(s.once, c)
			}
		}
		cl := &client{m: s.mesh, calls: calls}
		addr := fmt.Sprintf("10.0.0.1:%d", 15001+i%s.loops)
		s.clients.Do(func() { s.clients.Dial(addr, time.Second, cl) })
		if rnd.IntN(3) == 0 { // leaves in the middle of something
			s.w.At(time.Duration(rnd.IntN(300))*time.Millisecond, func() {
				s.clients.Post(func() {
					if cl.conn != nil {
						cl.conn.Close()
					}
				})
			})
		}
		s.calls = append(s.calls, calls...)
	}
	s.finish(s.calls...)
}

// mishap is one thing that goes wrong, with application i or what is beside it.
func (s *storm) mishap(kind, i int) {
	switch {
	case kind < 6 && (!s.direct || kind == 1 || kind == 2):
		s.fault(kind, i)
	case kind == 6, kind == 7: // an endpoint leaves
		var left []registry.Endpoint
		for j := range s.apps {
			if j != i {
				left = append(left, s.endpoints(j)...)
			}
		}
		s.consumer.update("compute", left...)
	case kind == 8, kind == 9: // all are back
		var all []registry.Endpoint
		for j := range s.apps {
			all = append(all, s.endpoints(j)...)
		}
		s.consumer.update("compute", all...)
	case kind == 10:
		s.apps[i].status = 503
		s.w.At(s.w.Now()+20*time.Millisecond, func() { s.apps[i].status = 200 })
	case kind == 11 && !s.direct:
		p := s.nodes[i+1]
		for _, stop := range p.stop {
			stop()
		}
		proc := p.proc
		proc.Drain()
		s.w.At(s.w.Now()+40*time.Millisecond, func() {
			if p.proc == proc {
				p.crash()
				p.restart(s.apps[i])
			}
		})
	}
}

// endpoints are those of application i: each loop of its sidecar is one.
func (s *storm) endpoints(i int) (eps []registry.Endpoint) {
	e := s.endpoint(i)
	if s.direct {
		return []registry.Endpoint{e}
	}
	for l := range s.loops {
		e.Addr = fmt.Sprintf("%s:%d", s.apps[i].host, 15006+l)
		eps = append(eps, e)
	}
	return eps
}

func (s *storm) check() {
	s.mesh.once(s.executed, s.once...)
	good := 0
	for _, c := range s.calls {
		switch {
		case c.status == 200:
			good++
		case c.err == nil && c.status != 502 && c.status != 503 && c.status != 504:
			s.t.Errorf("call %s: status %d %s", c.nonce, c.status, c.code)
		}
	}
	if good < len(s.calls)/20 {
		s.t.Errorf("only %d of %d calls were good", good, len(s.calls))
	}
	s.w.Run(time.Second) // who crashed late is back
	s.settled()
	st := s.consumer.stats("compute")
	extra := st.Hedges - st.HedgesMissed + st.RetriesPaid
	if limit := stormBudget*float64(st.Requests) + 10; float64(extra) > limit {
		s.t.Errorf("%d hedges (%d missed) and %d paid retries for %d requests, over %.0f",
			st.Hedges, st.HedgesMissed, st.RetriesPaid, st.Requests, limit)
	}
}

package http_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// timeoutsOf returns the headers that say a time, and the shortest time that they say.
func timeoutsOf(hs []protocol.Header) (names []string, shortest time.Duration) {
	for _, h := range hs {
		if f := protocol.TimeoutFieldOf(h.Name); f != protocol.NotTimeout {
			names = append(names, strings.ToLower(string(h.Name)))
			if d, ok := protocol.ParseTimeout(f, h.Value); ok && (shortest == 0 || d < shortest) {
				shortest = d
			}
		}
	}
	slices.Sort(names)
	return names, shortest
}

const (
	own, envoy, grpc = protocol.HeaderTimeout, protocol.HeaderEnvoyTimeout, protocol.HeaderGRPCTimeout

	onTheWay = 25 * time.Millisecond // at most, without a queue
)

// TestTimeoutHeaders checks whose timeouts count, and that the application is told what is left
// of the shortest, once in each header.
func TestTimeoutHeaders(t *testing.T) {
	const outside = "0.0.0.0:15001"
	const route = 15 * time.Second
	for _, c := range []struct {
		name, egress, listener, service string
		request                         []string
		seen                            []string      // by the application
		timeout                         time.Duration // what the caller has
	}{
		{name: "none", request: []string{"a: b"}},
		{name: "own", request: []string{"X-Remora-Timeout-Ms: 2000"}, seen: []string{own}, timeout: 2 * time.Second},
		{name: "Envoy's", request: []string{"X-Envoy-Expected-Rq-Timeout-Ms: 2000"}, seen: []string{envoy, own}, timeout: 2 * time.Second},
		{name: "gRPC's", request: []string{"Grpc-Timeout: 2S"}, seen: []string{grpc, own}, timeout: 2 * time.Second},
		{name: "all", request: []string{own + ": 3000", envoy + ": 2000", grpc + ": 4S"}, seen: []string{grpc, envoy, own}, timeout: 2 * time.Second},
		{name: "repeated", request: []string{own + ": 3000", own + ": 2000", grpc + ": 3S", grpc + ": 4S"}, seen: []string{grpc, own}, timeout: 2 * time.Second},
		{name: "longer than the route's", request: []string{own + ": 999999999999999999", grpc + ": 99999999H"}, seen: []string{grpc, own}, timeout: route},
		{name: "malformed", request: []string{own + ": soon", own + ": 20000000000000000000", own + ": 1,2", own + ":"}},
		{name: "Envoy's zero means none", request: []string{envoy + ": 0", own + ": 2000"}, seen: []string{envoy, own}, timeout: 2 * time.Second},
		{name: "off loopback", egress: outside, request: []string{own + ": 2", envoy + ": 3"}},
		{name: "off loopback, gRPC's is left alone", egress: outside, request: []string{grpc + ": 1m"}, seen: []string{grpc}, timeout: time.Millisecond},
		{name: "of a trusted proxy", egress: outside, listener: "forwarded: {trust: 1}",
			request: []string{own + ": 2", envoy + ": 2000"}, seen: []string{envoy, own}, timeout: 2 * time.Second},
		{name: "behind strangers", listener: "forwarded: {trust: 0}", request: []string{envoy + ": 3", own + ": 2000"}, seen: []string{own}, timeout: 2 * time.Second},
		{name: "not lengthened", listener: "forwarded: {trust: 0}", request: []string{grpc + ": 1m", own + ": 2000"}, seen: []string{grpc, own}, timeout: time.Millisecond},
		{name: "always", service: "timeout_header: true", request: []string{"a: b"}, seen: []string{own}, timeout: route},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := proxytest.MeshOptions{Apps: 1, Egress: c.egress, Listener: c.listener, Service: c.service, Provider: c.service}
			proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
				var seen []string
				var left time.Duration
				m.Apps[0].OnRequest = func(req *protocol.Request) { seen, left = timeoutsOf(req.Headers) }
				for i := range 3 { // later names travel as numbers
					call := m.Get("/", c.request...)
					m.Do(call)
					m.OK(call)
					proxytest.Equal(t, fmt.Sprint("headers of request ", i), fmt.Sprint(seen), fmt.Sprint(c.seen))
					if c.timeout > onTheWay && left == c.timeout || left > c.timeout || left < c.timeout-onTheWay {
						t.Errorf("the application has %v, and the caller %v", left, c.timeout)
					}
				}
				m.Settled()
			})
		})
	}
}

// TestTimeIsUp checks that a request without any time left fails at once. It reaches no
// application, and says nothing about the service.
func TestTimeIsUp(t *testing.T) {
	for _, header := range []string{own + ": 0", own + ": -20", grpc + ": 0m"} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "breaker: {consecutive: 1, open: 1h}"}, func(t *testing.T, m *proxytest.Mesh) {
			m.Apps[0].OnRequest = func(req *protocol.Request) {
				if protocol.Find(req.Headers, "late") != nil {
					t.Errorf("%s: the application got the request", header)
				}
			}
			late, next := m.Get("/", header, "late: 1"), m.Get("/")
			m.Do(late, next)
			m.Finish(late, next)
			proxytest.Equal(t, header, fmt.Sprint(late.Status, " ", late.Code), "504 deadline")
			if late.Took > onTheWay {
				t.Errorf("%s: the response took %v", header, late.Took)
			}
			m.OK(next)
			m.Settled()
		})
	}
}

// TestTimeoutShortens checks that the caller's timeout shortens the route's, and never lengthens it.
func TestTimeoutShortens(t *testing.T) {
	for header, want := range map[string]time.Duration{
		own + ": 30":    30 * time.Millisecond,
		grpc + ": 40m":  40 * time.Millisecond,
		own + ": 5000":  100 * time.Millisecond,
		grpc + ": 999H": 100 * time.Millisecond,
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 100ms"}, func(t *testing.T, m *proxytest.Mesh) {
			m.Apps[0].Delay = func() time.Duration { return time.Second }
			call := m.Get("/", header)
			m.Do(call)
			m.Finish(call)
			proxytest.Equal(t, header, fmt.Sprint(call.Status, " ", call.Code), "504 deadline")
			if call.Took < want || call.Took > want+onTheWay {
				t.Errorf("%s: the response took %v, want %v", header, call.Took, want)
			}
		})
	}
}

// TestTimeoutUsedUp checks that time in a sidecar counts: in a queue for the application, before
// a hedge or a retry, behind an earlier request of the connection, and while a body arrives.
func TestTimeoutUsedUp(t *testing.T) {
	const timeout, used, pause = 2 * time.Second, 300 * time.Millisecond, 10 * time.Millisecond
	header := own + ": 2000"
	slow := func(m *proxytest.Mesh) {
		first := true
		m.Apps[0].Delay = func() time.Duration {
			defer func() { first = false }()
			return map[bool]time.Duration{true: used + pause, false: time.Millisecond}[first]
		}
	}
	pipelined := func(m *proxytest.Mesh) {
		cl := m.Dial(proxytest.Egress)
		first, second := m.Get("/"), m.Get("/", header)
		first.Raw, second.Raw = append(first.Raw, second.Raw...), nil
		cl.Calls = []*proxytest.Call{first, second}
		m.OK(first, second)
	}
	for _, c := range []struct {
		name string
		o    proxytest.MeshOptions
		run  func(m *proxytest.Mesh)
	}{
		{"queue", proxytest.MeshOptions{Service: "max_concurrency: 1", Provider: "max_concurrency: 1"}, func(m *proxytest.Mesh) {
			slow(m)
			first, second := m.Get("/"), m.Get("/", header)
			m.Do(first)
			m.W.Run(pause)
			m.Do(second)
			m.OK(first, second)
		}},
		{"hedge", proxytest.MeshOptions{Apps: 2, Service: "hedge: {mode: on, delay: 300ms, max_delay: 1s, budget: 1}"}, func(m *proxytest.Mesh) {
			m.Apps.Slow(500 * time.Millisecond)
			call := m.Get("/", header)
			m.Do(call)
			m.OK(call)
		}},
		{"retry", proxytest.MeshOptions{Apps: 2, Service: "retry: {on: [5xx]}"}, func(m *proxytest.Mesh) {
			for _, a := range m.Apps {
				a.Delay = func() time.Duration { return used }
				a.Status = 503
			}
			call := m.Get("/", header)
			m.Do(call)
			m.Finish(call)
			proxytest.Equal(m.T, "status", call.Status, 503)
		}},
		{"pipelined", proxytest.MeshOptions{}, func(m *proxytest.Mesh) {
			slow(m)
			pipelined(m)
		}},
		{"body behind another", proxytest.MeshOptions{}, func(m *proxytest.Mesh) {
			slow(m)
			first, second := m.Get("/"), m.Post(10, header)
			whole := second.Raw
			first.Raw, second.Raw = append(first.Raw, whole[:len(whole)-5]...), nil
			cl := m.Do(first, second)
			m.W.Run(used / 2)
			m.Clients.Do(func() { cl.Conn.Write(whole[len(whole)-5:]) })
			m.OK(first, second)
		}},
		{"body", proxytest.MeshOptions{}, func(m *proxytest.Mesh) {
			call := m.Post(10, header)
			whole := call.Raw
			call.Raw = whole[:len(whole)-5]
			cl := m.Do(call)
			m.W.Run(used)
			m.Clients.Do(func() { cl.Conn.Write(whole[len(whole)-5:]) })
			m.OK(call)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Apps = max(c.o.Apps, 1)
			proxytest.EachTopology(t, c.o, func(t *testing.T, m *proxytest.Mesh) {
				m.T = t
				var last time.Duration
				for _, a := range m.Apps {
					a.OnRequest = func(req *protocol.Request) {
						names, left := timeoutsOf(req.Headers)
						if len(names) > 1 {
							t.Errorf("the application got %v", names)
						}
						last = left
					}
				}
				c.run(m)
				if last > timeout-used || last < timeout-used-onTheWay {
					t.Errorf("the application has %v of %v, and %v are used up", last, timeout, used)
				}
				m.Settled()
			})
		})
	}
}

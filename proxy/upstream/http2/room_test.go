package http2_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
)

// noStreams is SETTINGS that allow no stream.
const noStreams = "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x03\x00\x00\x00\x00"

// TestNoStreamsAllowed: an endpoint that allows no stream counts as one that can't be connected to.
func TestNoStreamsAllowed(t *testing.T) {
	for _, n := range []int{1, 2} {
		m, apps := newMesh(t, n, "lb: {policy: weighted_round_robin}")
		dials := 0
		apps[0].stop()
		apps[0].stop = m.W.Net.Listen(apps[0].of.Addr, apps[0].of.Loop, func() loop.Receiver {
			dials++
			return &proxytest.Peer{Says: []byte(noStreams)}
		})
		for range 10 {
			c := m.Post(10)
			m.Do(c)
			m.Finish(c)
			switch {
			case c.Took > time.Second:
				t.Errorf("%d endpoints: a request took %v", n, c.Took)
			case n == 2:
				m.OK(c)
			case c.Code != "upstream-connect":
				t.Errorf("status %d %s", c.Status, c.Code)
			}
		}
		if dials == 0 || dials > 30 {
			t.Errorf("%d endpoints: %d dials for 10 requests", n, dials)
		}
		m.Settled()
	}
}

// TestFullElsewhere: requests for which an endpoint has no room within connect_timeout go to
// another one. Without another they wait.
func TestFullElsewhere(t *testing.T) {
	for _, n := range []int{1, 2} {
		m, apps := newMesh(t, n, "timeout: 20s, lb: {policy: weighted_round_robin}")
		for i, a := range apps {
			a.streams = 1
			a.stop()
			a.listen()
			if i == 0 {
				a.onCall = a.later(5 * time.Second)
			}
		}
		calls := m.Burst(300, 10) // 128 of them fill the connections to the first
		m.Finish(calls...)
		m.OK(calls...)
		for _, c := range calls {
			if n == 2 && c.Took > 6*time.Second {
				t.Errorf("a request took %v", c.Took)
				break
			}
		}
		if got := apps[0].calls; n == 2 && got != 128 {
			t.Errorf("%d calls of the endpoint without room, want 128", got)
		}
		m.Settled()
	}
}

// newFull returns a mesh whose application has calls that fill its connections, with so many streams each.
func newFull(t *testing.T, streams, calls int) (*proxytest.Mesh, *proxytest.Carrier, *app, []*proxytest.Call) {
	t.Helper()
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages,
		Service: "timeout: 60s, connect_timeout: 2s"})
	a := startApps(m)[0]
	a.streams = streams
	a.stop()
	a.listen()
	a.onCall = a.later(20 * time.Second)
	pending := m.Burst(calls, 10)
	m.W.Run(time.Second)
	return m, consumer, a, pending
}

// TestStreamWaitsForRoom: a stream for which an endpoint has no room within connect_timeout fails for
// that reason.
func TestStreamWaitsForRoom(t *testing.T) {
	m, consumer, _, calls := newFull(t, 1, 128)
	m.W.Run(2 * time.Second) // nothing else waits any more
	m.Consumer.Open()
	m.W.Run(1900 * time.Millisecond)
	if got := consumer.Pipes[0].Closed; got != nil {
		t.Errorf("before connect_timeout: %v", got)
	}
	m.W.Run(time.Second)
	if got := consumer.Pipes[0].Closed; got != (fault.Error{Failure: fault.StreamLimit}) {
		t.Errorf("%v", got)
	}
	m.Finish(calls...)
	m.OK(calls...)
}

// TestStreamWaitsForDials: a stream fails after connect_timeout, too, while dials fail one after another,
// and a connection that is full keeps them from failing all.
func TestStreamWaitsForDials(t *testing.T) {
	m, consumer, a, calls := newFull(t, 100, 100)
	m.W.Faults.Blackhole(a.of.Addr, true)
	calls = append(calls, m.Burst(2, 10)...)
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Open()
	for range 50 {
		calls = append(calls, m.Burst(2, 10)...) // so few that one dial at a time is enough
		m.W.Run(100 * time.Millisecond)
	}
	if got := consumer.Pipes[0].Closed; got != (fault.Error{Failure: fault.Connect}) {
		t.Errorf("%v", got)
	}
	m.Finish(calls...)
}

// TestFullEverywhere: requests for which no endpoint has room are refused, and say why.
func TestFullEverywhere(t *testing.T) {
	m, apps := newMesh(t, 2, "timeout: 20s, lb: {policy: weighted_round_robin}")
	for _, a := range apps {
		a.streams = 1
		a.stop()
		a.listen()
		a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) {}
	}
	calls := m.Burst(300, 10)
	m.Finish(calls...)
	const timeout = 250 * time.Millisecond // connect_timeout
	for _, c := range calls {
		if c.Code == "connection-full" && (c.Took < timeout || c.Took > 2*timeout+timeout/6) { // at each endpoint, which looks each eighth
			t.Errorf("refused after %v", c.Took)
			break
		}
	}
	if n := proxytest.CountCodes(calls); n["connection-full"] != 300-2*128 || n["deadline"] != 2*128 {
		t.Errorf("responses %v", n)
	}
	m.Settled()
}

// TestWaitsForConnectTimeout: what waits for room fails connect_timeout after it has come, or an eighth of that later.
func TestWaitsForConnectTimeout(t *testing.T) {
	const ms = time.Millisecond
	for name, tunnels := range map[string]bool{"requests": false, "tunnels": true} {
		t.Run(name, func(t *testing.T) {
			m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Speaks: "http2", Match: messages,
				Service: "timeout: 60s, connect_timeout: 2s, retry: {on: []}, max_pending: 1000, lb: {policy: weighted_round_robin}"})
			for _, a := range startApps(m) {
				a.streams = 1
				a.stop()
				a.listen()
				a.onCall = a.later(20 * time.Second)
			}
			busy := m.Burst(2*128, 10)
			m.W.Run(4 * time.Second) // nothing else waits any more
			began := m.W.Now()
			var streams []*race.Stream
			var failed []func() string // why each has failed; "" if it has not
			for _, at := range []time.Duration{0, 100 * ms, 1130 * ms} {
				m.W.Run(began + at - m.W.Now())
				if !tunnels {
					call := m.Post(10)
					m.Do(call)
					failed = append(failed, func() string { return call.Code })
					continue
				}
				opened := m.Consumer.Open()
				streams = append(streams, opened.Stream)
				p := carrier.Pipes[len(carrier.Pipes)-1]
				failed = append(failed, func() string {
					if p.Closed == nil {
						return ""
					}
					return p.Closed.Error()
				})
			}
			// The pool looks again an eighth of the timeout after the first has failed: the second is due before that, and the third is due later.
			for _, c := range []struct {
				at   time.Duration
				fail int // so many have failed then
			}{{1990 * ms, 0}, {2020 * ms, 1}, {2090 * ms, 1}, {2270 * ms, 2}, {3120 * ms, 2}, {3150 * ms, 3}} {
				m.W.Run(began + c.at - m.W.Now())
				for i, why := range failed {
					if got := why(); (got != "") != (i < c.fail) {
						t.Errorf("after %v number %d has failed for %q, want the first %d failed", c.at, i, got, c.fail)
					}
				}
			}
			for _, s := range streams {
				s.Close(false, 0, 0)
			}
			m.Finish(busy...)
			proxytest.CheckStreamsSettled(m, carrier)
		})
	}
}

// TestRoomOfLost: an endpoint has as many connections as it may have, and a request waits. When a connection is lost, the request gets
// a new connection.
func TestRoomOfLost(t *testing.T) {
	m, _, a, calls := newFull(t, 1, 128)
	a.onCall = nil
	late := m.Post(10)
	m.Do(late)
	m.W.Run(100 * time.Millisecond)
	if late.Done || len(a.conns) != 128 {
		t.Fatalf("%d connections, the request has ended: %t", len(a.conns), late.Done)
	}
	m.W.Faults.Reset(a.conns[3].Conn)
	m.W.Run(100 * time.Millisecond)
	if m.OK(late); late.Took > time.Second || len(a.conns) != 129 {
		t.Errorf("%d connections, the request took %v", len(a.conns), late.Took)
	}
	m.Finish(calls...)
	m.Settled()
}

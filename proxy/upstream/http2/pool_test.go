package http2_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestDials: an endpoint is dialled once until it has told how many streams it takes, and then as often as waiting requests need,
// but sixteen times at most at a time.
func TestDials(t *testing.T) {
	for _, c := range []struct{ streams, requests, most, connections int }{{1, 1, 1, 1}, {1, 3, 3, 3}, {1, 100, 16, 100}, {10, 25, 3, 3}, {10, 20, 2, 2}} {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 10s, idle_timeout: 1ms"})
		a := startApps(m)[0]
		a.streams = c.streams
		a.stop()
		a.listen()
		m.OK(do(m))
		if d.MostDialling != 1 {
			t.Errorf("%d dials at a time to an endpoint that has said nothing", d.MostDialling)
		}
		m.W.Run(100 * time.Millisecond)
		if n := len(a.open()); n != 0 {
			t.Errorf("%d connections are open after their idle timeout", n)
		}
		a.onCall = a.later(time.Second)
		calls := m.Burst(c.requests, 10)
		m.Finish(calls...)
		m.OK(calls...)
		if d.MostDialling != c.most || len(a.conns)-1 != c.connections {
			t.Errorf("%d requests, %d for each connection: %d connections, %d dials at a time; want %d and %d",
				c.requests, c.streams, len(a.conns)-1, d.MostDialling, c.connections, c.most)
		}
		m.Settled()
	}
}

// TestOneDialUntilSettings: while an endpoint has not told how many streams it takes, there is one dial for all requests.
func TestOneDialUntilSettings(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 1s, connect_timeout: 5s"})
	m.Apps[0].Stop()
	m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver { return &proxytest.Peer{} })
	calls := m.Burst(50, 10)
	m.Finish(calls...)
	if n := proxytest.CountCodes(calls); n["deadline"] != len(calls) || d.Dials != 1 {
		t.Errorf("responses %v, %d dials", n, d.Dials)
	}
	m.Settled()
}

// TestRefusedAfterLoss: once an endpoint has closed its only connection, none may become free: a request fails at once if the driver has
// no room for a dial.
func TestRefusedAfterLoss(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 10s, retry: {on: []}"})
	a := startApps(m)[0]
	m.OK(do(m))
	m.W.Faults.Reset(a.conns[0].Conn)
	m.W.Run(10 * time.Millisecond)
	d.MaxDials, d.Dialling = 1, 1 // for another endpoint
	if call := do(m); call.Code != "too-many-dials" || call.Took > time.Second {
		t.Errorf("status %d %s after %v", call.Status, call.Code, call.Took)
	}
	d.Dialling = 0
	m.OK(do(m))
	m.Settled()
}

// TestFailedDials: what waits fails with the dial that it waits for. If there is another connection, one request or tunnel fails with
// each dial; without, all fail that have waited since the dial began, and so do all tunnels.
func TestFailedDials(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		busy    bool            // there is a connection, without room
		streams int             // of a connection
		tunnels bool            // and not requests
		waits   []time.Duration // since when
		want    []time.Duration // when they fail
	}{
		{"requests", false, 1, false, []time.Duration{0, s, s}, []time.Duration{2 * s, 4 * s, 4 * s}},
		{"tunnels", false, 1, true, []time.Duration{0, 0, s}, []time.Duration{2 * s, 2 * s, 2 * s}},
		{"requests beside a connection", true, 1, false, []time.Duration{0, s, s}, []time.Duration{2 * s, 3 * s, 3 * s}},
		{"tunnels beside a connection", true, 1, true, []time.Duration{0, s, s}, []time.Duration{2 * s, 3 * s, 3 * s}},
		{"requests of one dial beside a connection", true, 3, false, []time.Duration{0, s, s}, []time.Duration{2 * s, 4 * s, 4 * s}},
		{"tunnels of one dial beside a connection", true, 3, true, []time.Duration{0, s, s}, []time.Duration{2 * s, 4 * s, 4 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages,
				Service: "timeout: 60s, connect_timeout: 2s, retry: {on: []}"})
			a := startApps(m)[0]
			if c.busy {
				a.streams = c.streams
				a.stop()
				a.listen()
				a.onCall = a.later(20 * s)
				m.Burst(c.streams, 10)
				m.RunUntil("the requests", func() bool { return a.calls == c.streams })
			}
			m.W.Faults.Blackhole(a.of.Addr, true)
			began := m.W.Now()
			failed := make([]func() (bool, string), len(c.waits))
			for i, at := range c.waits {
				m.W.Run(began + at - m.W.Now())
				if !c.tunnels {
					call := m.Post(10)
					m.Do(call)
					failed[i] = func() (bool, string) { return call.Done, call.Code }
					continue
				}
				opened := m.Consumer.Open()
				defer opened.Stream.Close(false, 0, 0)
				p := carrier.Pipes[len(carrier.Pipes)-1]
				failed[i] = func() (bool, string) {
					if p.Closed == nil {
						return false, ""
					}
					return true, p.Closed.(fault.Error).Code
				}
			}
			for at := s + s/2; at < 5*s; at += s {
				m.W.Run(began + at - m.W.Now())
				for i, f := range failed {
					done, code := f()
					if done != (c.want[i] < at) || done && code != "upstream-connect" {
						t.Errorf("after %v, number %d has failed: %t %s; want it after %v", at, i, done, code, c.want[i])
					}
				}
			}
		})
	}
}

// TestRefusedBesideConnection: beside a connection without room one request or tunnel fails with each dial that the endpoint refuses.
func TestRefusedBesideConnection(t *testing.T) {
	d := &proxytest.Dialler{}
	m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Dialler: d.Of,
		Service: "timeout: 60s, connect_timeout: 10s, retry: {on: []}"})
	a := startApps(m)[0]
	a.streams = 1
	a.stop()
	a.listen()
	a.onCall = a.later(time.Second)
	busy := m.Post(10)
	m.Do(busy)
	m.RunUntil("a request", func() bool { return a.calls == 1 })
	a.stop()
	for range 3 {
		opened := m.Consumer.Open()
		defer opened.Stream.Close(false, 0, 0)
	}
	calls := m.Burst(3, 10)
	m.W.Run(100 * time.Millisecond)
	if n := proxytest.CountCodes(calls); n["upstream-connect"] != len(calls) {
		t.Errorf("responses %v", n)
	}
	for i, p := range carrier.Pipes {
		if p.Closed != (fault.Error{Failure: fault.Connect}) {
			t.Errorf("tunnel %d: %v", i, p.Closed)
		}
	}
	if n := d.Dials - 1; n < 6 || n > 12 {
		t.Errorf("%d dials for 6 that wait", n)
	}
	m.OK(busy)
}

// TestRoomWhileDialsFail: what waits for longer than connect_timeout does not fail with a dial if connections get room meanwhile.
func TestRoomWhileDialsFail(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 60s, connect_timeout: 2500ms, retry: {on: []}")
	a := apps[0]
	m.OK(do(m))
	a.onCall = a.later(time.Second)
	m.W.Faults.Blackhole(a.of.Addr, true)
	calls := m.Burst(450, 1) // the connection takes 100 at a time
	m.Finish(calls...)
	if n := proxytest.CountCodes(calls); n[""]+n["upstream-connect"] != len(calls) || n["upstream-connect"] > 20 {
		t.Errorf("responses %v", n)
	}
	m.Settled()
}

// TestIdleTimeout: connections close once they were idle for idle_timeout, and few at a time. One that carries a request meanwhile is
// idle anew.
func TestIdleTimeout(t *testing.T) {
	const n = 40
	m, apps := newMesh(t, 1, "idle_timeout: 8s")
	a := apps[0]
	a.streams = 1
	a.stop()
	a.listen()
	a.onCall = a.later(100 * time.Millisecond)
	calls := m.Burst(n, 10)
	m.Finish(calls...)
	m.OK(calls...)
	if len(a.conns) != n {
		t.Fatalf("%d connections", len(a.conns))
	}
	idle := m.W.Now() // for 0.1 ms or so
	m.W.Run(3 * time.Second)
	m.OK(do(m))
	if m.W.Run(idle + 7990*time.Millisecond - m.W.Now()); len(a.open()) != n {
		t.Errorf("%d connections are open just before their timeout", len(a.open()))
	}
	for left := n; m.W.Now() < idle+9100*time.Millisecond; left = len(a.open()) { // it may be late by an eighth
		m.W.Run(time.Millisecond)
		if closed := left - len(a.open()); closed > 16 {
			t.Errorf("%d connections have closed within a millisecond", closed)
		}
	}
	if len(a.open()) != 1 {
		t.Errorf("%d connections are open after their timeout, want the one that was used", len(a.open()))
	}
	if m.W.Run(idle + 11*time.Second - m.W.Now()); len(a.open()) != 1 {
		t.Error("a connection has closed before its timeout")
	}
	if m.W.Run(1200 * time.Millisecond); len(a.open()) != 0 {
		t.Error("a connection is open after its timeout")
	}
	if n := m.Consumer.Proc.Interned(); n != 0 {
		t.Errorf("%d bytes are counted for the tables of connections that have closed", n)
	}
	m.Settled()
}

// TestIdleTimeoutOfOne: a connection that is idle alone closes at its timeout, and no later.
func TestIdleTimeoutOfOne(t *testing.T) {
	m, apps := newMesh(t, 1, "idle_timeout: 8s")
	m.OK(do(m))
	idle := m.W.Now()
	for at, want := range []int{1, 0} { // before and behind the timeout
		m.W.Run(idle + 8*time.Second + time.Duration(2*at-1)*10*time.Millisecond - m.W.Now())
		if n := len(apps[0].open()); n != want {
			t.Errorf("%v after the response %d connections are open, want %d", m.W.Now()-idle, n, want)
		}
	}
	m.Settled()
}

// TestNames: with TLS each request takes a connection that proves the host of the request, or the endpoint's name. At the bound of
// names one without a request gives way, and its connection closes.
func TestNames(t *testing.T) {
	const most = 64
	d := &proxytest.Dialler{}
	m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages, Dialler: d.Of,
		Service: "timeout: 20s, idle_timeout: 1m, retry: {on: []}, max_pending: 10000, tls: {ca: system, sni: host}"})
	a := startApps(m)[0]
	var held []func()
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		held = append(held, func() {
			a.of.Loop.Do(func() { respond(c, st); c.Flush() })
			m.W.Run(10 * time.Millisecond)
		})
	}
	send := func(host int) *proxytest.Call {
		c := m.Raw(fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.test\r\n\r\n", host))
		c.Nonce = "" // and so is that of the response
		m.Do(c)
		m.W.Run(10 * time.Millisecond)
		return c
	}
	var calls []*proxytest.Call
	for host := range most {
		calls = append(calls, send(host))
	}
	for i, r := range d.Receivers {
		if name, want := r.(loop.Named).ServerName(), fmt.Sprintf("h%d.test", i); name != want || r.(loop.Negotiated).ALPN() != "h2" {
			t.Errorf("connection %d is to prove %q, want %q", i, name, want)
		}
	}
	full := send(most)
	if m.Finish(full); full.Code != "overloaded" {
		t.Errorf("one host more: status %d %s", full.Status, full.Code)
	}
	opened := m.Consumer.OpenFor(shard.Client{Addr: "10.99.0.1:1"}) // the client of the requests
	s := &tunnel{m, opened, carrier.Pipes[len(carrier.Pipes)-1]}
	s.write(fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.test\r\n\r\n", most))
	if got := s.pipe.Closed; got != (fault.Error{Failure: fault.Connect}) {
		t.Errorf("a tunnel to one host more: %v", got)
	}
	s.end()
	for i, respond := range held {
		if i != 3 {
			respond()
		}
	}
	for host := range most - 1 { // all but one of those that have no request
		calls = append(calls, send(100+host))
	}
	if n := len(a.open()); n != most || a.conns[3].Ended {
		t.Errorf("%d connections are open, that with a request: %t", n, !a.conns[3].Ended)
	}
	for _, respond := range append(held[most:], held[3]) {
		respond()
	}
	m.Finish(calls...)
	m.OK(calls...)
	proxytest.CheckStreamsSettled(m, carrier)
}

// TestManyStreams: a connection carries 4096 requests at a time, although the endpoint allows more.
func TestManyStreams(t *testing.T) {
	const most = 4096
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 10s, idle_timeout: 1ms"})
	a := startApps(m)[0]
	a.streams = 2 * most
	a.stop()
	a.listen()
	m.OK(do(m))
	m.W.Run(100 * time.Millisecond)
	streams := 0
	later := a.later(time.Second)
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		streams = max(streams, c.H2.StreamCount())
		later(c, st)
	}
	m.W.Net.SetPaths(func(from, to string) sim.Path {
		p := sim.DefaultPaths(from, to)
		if !strings.Contains(from+to, "10.99") { // so late that all requests wait
			p.Latency = 50 * time.Millisecond
		}
		return p
	})
	calls := m.Burst(most+1, 0)
	m.FinishAfter(1500*time.Millisecond, calls)
	m.OK(calls...)
	if streams != most || d.Dials != 3 || d.MostDialling != 2 {
		t.Errorf("%d streams on a connection, %d connections, %d dials at a time", streams, d.Dials, d.MostDialling)
	}
	m.Settled()
}

// TestSteadyPings: an endpoint may send a PING from time to time for ever. That does not keep an idle connection open, and its end is
// announced.
func TestSteadyPings(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 200s, idle_timeout: 8s")
	a := apps[0]
	a.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
	call := m.Post(10)
	m.Do(call)
	ping := frame(framePing, 0, 0, "12345678")
	pings := func(n int) {
		for range n {
			m.W.Run(100 * time.Millisecond)
			a.of.Loop.Do(func() { p.Conn.Write([]byte(ping)) })
		}
	}
	pings(500)
	a.of.Loop.Do(func() {
		p.Conn.Write([]byte(frame(proxytest.FrameHeaders, proxytest.FlagEndHeaders|proxytest.FlagEnd, 1, "\x88")))
	})
	call.Nonce = ""
	m.OK(call)
	pings(75)
	if p.Ended {
		t.Error("the connection has closed before its idle timeout")
	}
	pings(20)
	if last := p.Heard[len(p.Heard)-17:]; !p.Ended || last[3] != frameGoAway {
		t.Errorf("the connection has closed after its idle timeout: %t, behind %q", p.Ended, last)
	}
	m.Settled()
	if n := m.Consumer.Proc.Buffered(); n != 0 {
		t.Errorf("%d bytes are counted without a connection", n)
	}
}

// TestRefusedBesideDraining: a connection that drains takes no request. The requests that have waited since a dial began fail when the
// dial fails.
func TestRefusedBesideDraining(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 60s, retry: {on: []}"})
	a := startApps(m)[0]
	a.onCall = a.later(time.Second)
	busy := m.Post(10)
	m.Do(busy)
	m.RunUntil("a request", func() bool { return a.calls == 1 })
	a.stop()
	a.of.Loop.Do(func() { a.conns[0].H2.Drain(); a.conns[0].Flush() })
	m.W.Run(10 * time.Millisecond)
	calls := m.Burst(20, 10)
	m.W.Run(100 * time.Millisecond)
	if n := proxytest.CountCodes(calls); n["upstream-connect"] != len(calls) {
		t.Errorf("responses %v", n)
	}
	if n := d.Dials - 1; n >= len(calls) {
		t.Errorf("%d dials for %d requests: each has failed with a dial of its own", n, len(calls))
	}
	m.OK(busy)
	m.Settled()
}

// TestDialFollowsSilence: once the last dial under way has failed, the next one follows at once: a stream that has waited for
// connect_timeout goes on waiting for it, although the loop, which was late, then looks for what has waited too long.
func TestDialFollowsSilence(t *testing.T) {
	const s = time.Second
	m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages,
		Service: "timeout: 60s, connect_timeout: 2s, retry: {on: []}"})
	a := startApps(m)[0]
	a.streams = 2
	a.stop()
	a.listen()
	for i, took := range []time.Duration{20 * s, 2 * s} {
		a.onCall = a.later(took)
		m.Burst(1, 10)
		m.RunUntil("a request", func() bool { return a.calls == i+1 })
	}
	a.onCall = a.later(20 * s)
	a.stop()
	a.stop = m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return &proxytest.Peer{} }) // silent
	m.W.Run(s)
	began := m.W.Now()
	for range 3 {
		opened := m.Consumer.Open()
		defer opened.Stream.Close(false, 0, 0)
	}
	m.Burst(1, 10) // takes the room that there will be
	m.W.At(began+2*s+10*time.Microsecond, func() { m.W.Faults.Pause(m.Consumer.Loop, 300*time.Millisecond) })
	m.W.Run(2*s + 400*time.Millisecond)
	for i, p := range carrier.Pipes {
		if got, want := p.Closed != nil, i < 2; got != want { // one fails with each of two dials
			t.Errorf("stream %d has failed: %t, %v", i, got, p.Closed)
		}
	}
}

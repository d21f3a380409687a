package shard_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// A client that holds all of limits.buffered gets no new work; other clients do.
func TestShareRefusesOneClient(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget}, func(t *testing.T, m *proxytest.Mesh) {
		overShare := []*proxytest.Call{incomplete(m, 1<<20), incomplete(m, 1<<20)}
		for _, c := range overShare {
			m.Do(c)
		}
		m.W.Run(20 * time.Millisecond)
		if n := m.Consumer.Proc.Held(); n < 2<<20-10 {
			t.Fatalf("%d bytes held", n)
		}
		calls := m.Crowd(4, 5, 1000)
		m.OK(calls...)
		if overShare[0].Done || overShare[1].Done {
			t.Error("an incomplete request was refused before timeouts.body")
		}
		m.Finish(overShare...)
		for _, c := range overShare {
			if c.Status != 408 {
				t.Errorf("status %d %s, want 408 after timeouts.body", c.Status, c.Code)
			}
		}
		m.Settled()
	})
}

// A link that holds all of limits.buffered has its requests refused, except small ones.
// Requests of another link pass.
func TestShareRefusesOneLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	w := link.NewWriter()
	overShare := &proxytest.Peer{Says: appendIncomplete(w, 70, 24<<10, 1<<20)}
	m.Clients.Do(func() { m.Clients.Dial("10.0.1.1:15006", time.Second, overShare) })
	m.W.Run(20 * time.Millisecond)
	before := m.Nodes[1].Proc.Held()
	if before < 9<<18 {
		t.Fatalf("%d bytes held", before)
	}
	calls := append(m.Crowd(4, 5, 1000), m.Burst(2, 100_000)...)
	m.OK(calls...)

	id := uint64(70)
	send := func(n, size int) (served int, heard int) {
		served, heard = m.Apps[0].Served, len(overShare.Heard)
		for range n {
			id++
			w.Request(id, &protocol.Request{Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"),
				Authority: []byte("local"), Body: make([]byte, size)}, time.Minute, nil)
		}
		m.Clients.Do(func() { overShare.Conn.Write(w.Append(nil, n*(size%(1<<20)+100))) })
		m.W.Run(20 * time.Millisecond)
		return m.Apps[0].Served - served, len(overShare.Heard) - heard
	}
	if served, heard := send(100, 1<<20); served != 0 || heard < 300 {
		t.Errorf("%d bytes received, too few to refuse 100 requests; %d served", heard, served)
	}
	if n := m.Nodes[1].Proc.Held() - before; n > 200_000 {
		t.Errorf("%d bytes more are held", n)
	}
	// Small requests may be those of another caller on the link. With many pending, fewer count as small.
	if served, _ := send(100, 0); served != 100 {
		t.Errorf("%d of 100 small requests were served", served)
	}
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	if _, heard := send(400, 12_000); heard < 300 {
		t.Errorf("%d bytes received, too few to refuse more than 100 of 400 requests", heard)
	}
	if n := m.Nodes[1].Proc.Held() - before; n > 5<<19 || overShare.Ended {
		t.Errorf("%d bytes more are held, want about a share of 2 MiB; link closed: %t", n, overShare.Ended)
	}
}

// With many connections the shares are small. A request above the share of its connection
// is refused.
func TestShareShrinksWithConnections(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget})
	for range 300 {
		m.Do(incomplete(m, 8_000))
	}
	m.W.Run(20 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); n < 2<<20 {
		t.Fatalf("%d bytes held", n)
	}
	modest, large := m.Post(1000), incomplete(m, 200_000)
	m.Do(modest)
	m.Do(large)
	m.Finish(modest, large)
	m.OK(modest)
	if large.Status != 503 || large.Code != "overloaded" {
		t.Errorf("status %d %s for 200 kB, want 503 overloaded", large.Status, large.Code)
	}

	head := &proxytest.Peer{Says: []byte("GET / HTTP/1.1\r\nHost: a\r\na: " + strings.Repeat("x", 20_000))}
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, head) })
	m.W.Run(20 * time.Millisecond)
	m.Clients.Do(func() { head.Conn.Write([]byte(strings.Repeat("x", 20_000))) })
	m.W.Run(20 * time.Millisecond)
	if !bytes.HasPrefix(head.Heard, []byte("HTTP/1.1 503 ")) {
		t.Errorf("received %q for an incomplete head of 40 kB, want a 503", head.Heard)
	}
}

// A share is an equal part for each connection of the process, on whatever loop it is.
func TestShareOfAllLoops(t *testing.T) {
	p := &shard.Process{Loops: 2}
	p.Budget.Configure(&config.Limits{Buffered: 1 << 20, Message: 1 << 20})
	s := shard.Shard{Process: p}
	for sessions, want := range map[int64]int{0: 4 << 20, 1: 4 << 20, 8: 512 << 10} {
		p.Sessions.Store(sessions)
		if got := s.Share(); got != want {
			t.Errorf("%d bytes for each of %d connections, want %d", got, sessions, want)
		}
	}
}

// Many incomplete requests count as buffered, however small each is and wherever it stops.
func TestIncompleteRequestsBelowHardMark(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\na: "
	for name, end := range map[string]string{"in the head": "", "behind it": "\r\nContent-Length: 10\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget})
			for range 400 {
				m.Do(m.Raw(head + strings.Repeat("x", 60_000) + end))
			}
			most := int64(0)
			for range 100 {
				m.W.Run(time.Millisecond)
				most = max(most, m.Consumer.Proc.Held())
			}
			if most < 1<<20 || most > 5<<20+128<<10 {
				t.Errorf("%d bytes held, want more than the limit and at most the hard mark of 5 MiB", most)
			}
			c := m.Post(1000)
			m.Do(c)
			m.OK(c)
		})
	}
}

// The loop with the largest connection closes it, also if another loop has passed the hard
// mark. The other's largest, which holds less than an equal part, goes on.
func TestShedOnAnotherLoop(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Loops: 2})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 1<<20) }
	turn := time.Duration(0)
	m.Apps[0].Delay = func() time.Duration { // one response after another, to requests that arrive together
		turn += 100 * time.Millisecond
		return turn
	}
	var lazy []*proxytest.Client
	for range 7 { // half of each response is on its way
		cl := m.Do(m.Get("/"))
		lazy = append(lazy, cl)
		m.W.RunUntil(func() bool { return cl.Conn != nil }, time.Second)
		m.W.Faults.PauseReading(cl.Conn, true)
	}
	m.W.Run(time.Second)
	if n := m.Consumer.Proc.Held(); n < 7<<19 || m.Consumer.ShedConnections() > 0 {
		t.Fatalf("%d bytes held, %d connections closed", n, m.Consumer.ShedConnections())
	}
	modest := incomplete(m, 70_000) // less than an equal part of all memory, more than any other there
	m.Dial("10.0.0.1:15002").Calls = []*proxytest.Call{modest}
	for range 58 {
		m.Dial("10.0.0.1:15002").Calls = []*proxytest.Call{incomplete(m, 30_000)}
	}
	m.W.Run(time.Second)
	n := [2]uint64{}
	for i, w := range m.Consumer.Proc.Workers() {
		m.Consumer.Loops[i].Do(func() { n[i] = w.Report(stats.Forecasts).Stats.Shed })
	}
	if n != [2]uint64{2, 0} {
		t.Errorf("the loops closed %d connections, want two on the first", n)
	}
	for _, cl := range lazy {
		m.W.Faults.PauseReading(cl.Conn, false)
	}
	m.W.Run(31 * time.Second)
	m.Settled()
}

// A link to an endpoint has requests of many callers. The connections of callers that hold
// the most are closed, and the link is not.
func TestShedCallersBeforeLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget, Service: "timeout: 10s"})
	provider := m.Nodes[1]
	provider.Crash()
	provider.Cfg.Limits.Buffered = 64 << 20
	provider.Start()
	provider.Listen(15006)
	provider.Update("local", registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1})
	m.Apps[0].Body = func(req *protocol.Request) []byte {
		if len(req.Body) > 1000 {
			return bytes.Repeat([]byte{'y'}, 1<<20)
		}
		return nil
	}
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	overShare := m.Burst(8, 250_000)
	m.W.Run(90 * time.Millisecond)
	modest := m.Post(1000)
	m.Do(modest)
	m.Finish(append(overShare, modest)...)
	m.OK(modest)
	if n := m.Consumer.ShedConnections(); n == 0 || n > 6 {
		t.Errorf("%d connections closed, want some of the 8 that hold the most", n)
	}
	m.Settled()
}

// incomplete returns a call with a body of size bytes, without the last byte.
func incomplete(m *proxytest.Mesh, size int) *proxytest.Call {
	return m.Raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)))
}

package shard_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Output that a client has not read counts as buffered.
func TestUnreadResponsesCountAsBuffered(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 2MiB, buffered: 3MiB}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	var lazy []*proxytest.Call
	var clients []*proxytest.Client
	for range 2 {
		c := m.Get("/")
		lazy = append(lazy, c)
		cl := m.Do(c)
		clients = append(clients, cl)
		m.W.RunUntil(func() bool { return cl.Conn != nil }, time.Second)
		m.W.Faults.PauseReading(cl.Conn, true)
	}
	m.W.Run(time.Second)
	if n := m.Consumer.Proc.Held(); n < 3<<20 {
		t.Errorf("%d bytes counted with two unread responses of 2 MiB", n)
	}
	for _, cl := range clients {
		m.W.Faults.PauseReading(cl.Conn, false)
	}
	m.OK(lazy...)
	m.Settled()
}

// Frames for a peer that reads nothing count as buffered.
func TestUnreadFramesCountAsBuffered(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 12_000) }
	m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
	calls := m.Burst(300, 10)
	m.W.Run(10 * time.Millisecond)
	m.W.Faults.Pause(m.Consumer.Loop, 2*time.Second)
	m.W.Run(time.Second)
	if n := m.Nodes[1].Proc.Held(); n < 3_000_000 {
		t.Errorf("%d bytes counted with 3.6 MB of unread responses", n)
	}
	m.OK(calls...)
	m.Settled()
}

// A peer that reads a little within each timeouts.write keeps its connection, although
// output is left at each check.
func TestWriteTimeoutOfSlowReader(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Bandwidth: 1 << 20, Limits: "timeouts: {write: 2s}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	var calls []*proxytest.Call
	cl := m.Dial(proxytest.Egress)
	var all []byte
	for range 8 { // 16 MiB at 1 MiB/s
		c := m.Get("/")
		all = append(all, c.Raw...)
		c.Raw = nil
		calls = append(calls, c)
	}
	calls[0].Raw = all
	cl.Calls = append(cl.Calls, calls...)
	m.OK(calls...)
	m.Settled()
}

// A peer that reads nothing for timeouts.write loses its connection.
func TestWriteTimeout(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {write: 2s}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	c := m.Get("/")
	cl := m.Do(c)
	m.W.RunUntil(func() bool { return cl.Conn != nil }, time.Second)
	m.W.Faults.PauseReading(cl.Conn, true)
	m.W.Run(2 * time.Second)
	if m.Consumer.Proc.Held() == 0 {
		t.Error("closed before timeouts.write")
	}
	m.W.Run(500 * time.Millisecond)
	m.Settled()
	if n := writeTimeouts(m); n != 1 {
		t.Errorf("%d write timeouts counted, want 1", n)
	}
}

func writeTimeouts(m *proxytest.Mesh) (n uint64) {
	m.Consumer.Loop.Do(func() { n = m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Stats.WriteTimeouts })
	return n
}

// Many clients pause. Those that read on in time keep their connections. Each of the others loses its own when
// its time is over, whatever becomes of the rest.
func TestWriteTimeoutsOfMany(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {write: 2s}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	const count, pause, late = 12, 50 * time.Millisecond, 300 * time.Millisecond
	var reading []*proxytest.Call
	var clients [count]*proxytest.Client
	var due []time.Duration // when the write timeouts of those that don't read pass
	for i := range clients {
		c := m.Get("/")
		clients[i] = m.Do(c)
		if i%3 == 0 {
			reading = append(reading, c)
		} else if i > 1 {
			due = append(due, m.W.Now()+2*time.Second)
		}
		m.W.RunUntil(func() bool { return clients[i].Conn != nil }, time.Second)
		m.W.Faults.PauseReading(clients[i].Conn, true)
		m.W.Run(pause)
	}
	m.W.Run(late)
	held := m.Consumer.Proc.Held()
	for i := 0; i < count; i += 3 {
		m.W.Faults.PauseReading(clients[i].Conn, false)
	}
	m.Clients.Do(func() { clients[1].Conn.Close() })
	m.OK(reading...)
	m.W.Run(late)
	if n, want := m.Consumer.Proc.Held(), held/count*int64(len(due)); n < want*9/10 || n > want*11/10 {
		t.Errorf("%d bytes are held for %d clients, want about %d", n, len(due), want)
	}
	for i, at := range due {
		m.W.Run(at - m.W.Now())
		if n := writeTimeouts(m); n > uint64(i) {
			t.Errorf("%d write timeouts, and %d are due", n, i)
		}
	}
	for i, at := range due {
		if at += late; at > m.W.Now() {
			m.W.Run(at - m.W.Now())
		}
		if n := writeTimeouts(m); n <= uint64(i) {
			t.Errorf("%d write timeouts, and %d are due", n, i+1)
		}
	}
	m.Settled()
	if n := writeTimeouts(m); n != uint64(len(due)) {
		t.Errorf("%d write timeouts counted, want %d", n, len(due))
	}
}

package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// What a client does not read counts as buffered, until it has read it.
func TestUnreadAnswersCountAsBuffered(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: "limits: {message: 2MiB, buffered: 3MiB}"})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	var lazy []*call
	var clients []*client
	for range 2 {
		c := m.get("/")
		lazy = append(lazy, c)
		cl := m.do(c)
		clients = append(clients, cl)
		m.w.RunUntil(func() bool { return cl.conn != nil }, time.Second)
		m.w.Hold(cl.conn, true)
	}
	m.w.Run(time.Second)
	if n := m.consumer.proc.Held(); n < 3<<20 {
		t.Errorf("%d bytes counted with two answers of 2 MiB unread", n)
	}
	for _, cl := range clients {
		m.w.Hold(cl.conn, false)
	}
	m.finish(lazy...)
	m.ok(lazy...)
	m.settled()
}

// What a link has encoded for a peer that reads nothing counts as buffered.
func TestUnreadFramesCountAsBuffered(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 12_000) }
	m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
	calls := m.burst(300, 10)
	m.w.Run(10 * time.Millisecond)
	m.w.Pause(m.consumer.loop, 2*time.Second)
	m.w.Run(time.Second)
	if n := m.nodes[1].proc.Held(); n < 3_000_000 {
		t.Errorf("%d bytes counted with 3.6 MB of answers not taken", n)
	}
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// A peer that reads a little in every timeouts.write keeps its connection,
// however full that is each time anyone looks.
func TestSlowReaderKeepsItsConnection(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, bandwidth: 1 << 20, limits: "timeouts: {write: 2s}"})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	var calls []*call
	cl := m.dial(egress)
	var all []byte
	for range 8 { // 16 MiB at 1 MiB/s
		c := m.get("/")
		all = append(all, c.raw...)
		c.raw = nil
		calls = append(calls, c)
	}
	calls[0].raw = all
	cl.calls = append(cl.calls, calls...)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// One that reads nothing for so long loses it.
func TestStuckReaderIsClosed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: "timeouts: {write: 2s}"})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	c := m.get("/")
	cl := m.do(c)
	m.w.RunUntil(func() bool { return cl.conn != nil }, time.Second)
	m.w.Hold(cl.conn, true)
	m.w.Run(2 * time.Second)
	if m.consumer.proc.Held() == 0 {
		t.Error("closed before timeouts.write was over")
	}
	m.w.Run(500 * time.Millisecond)
	m.settled()
	var n uint64
	m.consumer.loop.Do(func() { n = m.consumer.proc.Workers()[0].Report().Stats.WriteTimeouts })
	if n != 1 {
		t.Errorf("%d write timeouts counted, want 1", n)
	}
}

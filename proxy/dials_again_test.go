package proxy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// stuckMesh has the one connection to an application busy for long, and no room for
// dials of others.
func stuckMesh(t *testing.T) (m *mesh, d *dialler, busy *call) {
	m, d = diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", outlier: {consecutive: 1}"})
	m.apps[0].delay = func() time.Duration { return 10 * time.Second }
	busy = m.get("/")
	m.do(busy)
	m.w.Run(100 * time.Millisecond)
	m.apps[0].delay = func() time.Duration { return time.Millisecond }
	d.room, d.now = 1, 1
	return m, d, busy
}

// TestDialsAreTriedAgain: requests that wait since there was no room for their dials
// are served soon after there is, in the order in which they came, however long the
// connections are busy that there are.
func TestDialsAreTriedAgain(t *testing.T) {
	t.Run("room again", func(t *testing.T) {
		m, d, busy := stuckMesh(t)
		var served []string
		m.apps[0].seen = func(req *protocol.Request) { served = append(served, string(protocol.Find(req.Headers, "x-nonce"))) }
		var calls []*call
		for range 30 {
			c := m.post(10)
			m.do(c)
			calls = append(calls, c)
			m.w.Run(10 * time.Millisecond)
		}
		if d.refused < 2 || d.refused > 20 || len(served) > 0 {
			t.Errorf("%d dials refused within 300 ms, %d requests served", d.refused, len(served))
		}
		d.now = 0 // one at a time: most dials for those that wait are refused again
		since := m.w.Now()
		m.finish(calls...)
		m.ok(calls...)
		if took := m.w.Now() - since; took > 100*time.Millisecond {
			t.Errorf("answered %v after there was room", took)
		}
		for i, nonce := range served {
			was := slices.IndexFunc(calls, func(c *call) bool { return c.nonce == nonce })
			if max(was-i, i-was) >= d.all {
				t.Errorf("request %d is served as number %d, over %d connections", was, i, d.all)
			}
		}
		m.finish(busy)
		m.ok(busy)
		if m.consumer.report().Services[0].Endpoints[0].Ejected {
			t.Error("the endpoint is ejected")
		}
		m.settled()
	})
	t.Run("room again after long", func(t *testing.T) {
		m, d, busy := stuckMesh(t)
		calls := m.burst(30, 10)
		m.w.Run(time.Second)
		before := d.refused
		m.w.Run(4 * time.Second)
		if n := d.refused - before; n < 45 || n > 55 {
			t.Errorf("%d dials refused within 4 s, want one in 80 ms", n)
		}
		d.now = 0
		since := m.w.Now()
		m.finish(calls...)
		m.ok(calls...)
		if took := m.w.Now() - since; took > 150*time.Millisecond {
			t.Errorf("answered %v after there was room", took)
		}
		m.finish(busy)
		m.settled()
	})
	t.Run("their callers go away", func(t *testing.T) {
		m, d, busy := stuckMesh(t)
		var clients []*client
		for range 10 {
			clients = append(clients, m.do(m.post(10)))
		}
		m.w.Run(50 * time.Millisecond)
		for _, c := range clients {
			m.clients.Do(func() { c.conn.Close() })
		}
		m.w.Run(50 * time.Millisecond)
		before := d.refused
		m.w.Run(time.Second)
		if d.refused != before {
			t.Errorf("%d dials for nobody", d.refused-before)
		}
		d.now = 0
		c := m.post(10)
		m.do(c)
		m.finish(c, busy)
		m.ok(c, busy)
		if c.took > 100*time.Millisecond {
			t.Errorf("answered after %v, with room for its dial", c.took)
		}
		m.settled()
	})
	t.Run("one that is lost", func(t *testing.T) {
		m, d, busy := stuckMesh(t)
		calls := m.burst(200, 10)
		m.w.Run(50 * time.Millisecond)
		m.w.ResetAll(m.consumer.host, m.apps[0].host+"-app")
		m.finish(append(calls, busy)...)
		if n := codes(calls); n["too-many-dials"] != len(calls) || busy.code != "upstream-reset" {
			t.Errorf("answers %v, and %s, after %d dials were refused", n, busy.code, d.refused)
		}
		m.settled()
	})
}

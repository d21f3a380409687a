package http_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// newFullDriverMesh returns a mesh in which the only connection to an application is busy, and
// the driver has no room for further dials.
func newFullDriverMesh(t *testing.T) (m *proxytest.Mesh, d *proxytest.Dialler, busy *proxytest.Call) {
	m, d = proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "outlier: {consecutive: 1}"})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	busy = m.Get("/")
	m.Do(busy)
	m.W.Run(100 * time.Millisecond)
	m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
	d.MaxDials, d.Dialling = 1, 1
	return m, d, busy
}

// TestDialRetry checks that requests whose dials were refused are served soon after the driver
// has room again. They are served in their order, however long the open connections are busy.
func TestDialRetry(t *testing.T) {
	t.Run("room again", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		var served []string
		m.Apps[0].OnRequest = func(req *protocol.Request) { served = append(served, string(protocol.Find(req.Headers, "x-nonce"))) }
		var calls []*proxytest.Call
		for range 30 {
			c := m.Post(10)
			m.Do(c)
			calls = append(calls, c)
			m.W.Run(10 * time.Millisecond)
		}
		if d.Refused < 2 || d.Refused > 20 || len(served) > 0 {
			t.Errorf("%d dials refused within 300 ms, %d requests served", d.Refused, len(served))
		}
		d.Dialling = 0 // one at a time: most dials for waiting requests are refused again
		since := m.W.Now()
		m.Finish(calls...)
		m.OK(calls...)
		if took := m.W.Now() - since; took > 100*time.Millisecond {
			t.Errorf("response %v after there was room", took)
		}
		for i, nonce := range served {
			was := slices.IndexFunc(calls, func(c *proxytest.Call) bool { return c.Nonce == nonce })
			if max(was-i, i-was) >= d.Dials {
				t.Errorf("request %d is served as number %d, over %d connections", was, i, d.Dials)
			}
		}
		m.Finish(busy)
		m.OK(busy)
		if m.Consumer.Report().Services[0].Endpoints[0].Ejected {
			t.Error("the endpoint is ejected")
		}
		m.Settled()
	})
	t.Run("room again after seconds", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		calls := m.Burst(30, 10)
		m.W.Run(time.Second)
		before := d.Refused
		m.W.Run(4 * time.Second)
		if n := d.Refused - before; n < 45 || n > 55 {
			t.Errorf("%d dials refused within 4 s, want one in 80 ms", n)
		}
		d.Dialling = 0
		since := m.W.Now()
		m.Finish(calls...)
		m.OK(calls...)
		if took := m.W.Now() - since; took > 150*time.Millisecond {
			t.Errorf("response %v after there was room", took)
		}
		m.Finish(busy)
		m.Settled()
	})
	t.Run("pauses", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		waits := m.Post(10)
		m.Do(waits)
		m.W.Run(5 * time.Millisecond)
		for i, pause := range []time.Duration{20, 40, 80, 80} { // milliseconds until the next dial
			m.W.Run((pause - 10) * time.Millisecond)
			before := d.Refused
			if m.W.Run(10 * time.Millisecond); before != i+1 || d.Refused != i+2 {
				t.Errorf("pause %d: %d dials were refused before its end, and %d after", i, before, d.Refused)
			}
		}
		d.Dialling = 0
		m.OK(waits, busy)
		m.Settled()
	})
	t.Run("room again for all", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		calls := m.Burst(5, 10)
		m.W.Run(50 * time.Millisecond)
		m.Apps[0].Delay = func() time.Duration { return 2 * time.Second }
		d.MaxDials, d.Dialling = 0, 0
		m.OK(calls...)
		for _, c := range calls {
			if c.Took > 3*time.Second {
				t.Errorf("response after %v: a request has waited for the connection of another", c.Took)
			}
		}
		m.OK(busy)
		m.Settled()
	})
	t.Run("the open connection closes", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
		m.Apps[0].Close = true
		m.Apps[0].Delay = func() time.Duration { return 75 * time.Millisecond }
		first, second := m.Get("/"), m.Get("/")
		m.Do(first)
		m.W.Run(5 * time.Millisecond)
		d.MaxDials, d.Dialling = 1, 1
		m.Do(second)
		m.W.Run(65 * time.Millisecond) // with dials 20 ms and 60 ms after the first, and the next one after 140 ms
		m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
		refused := d.Refused
		d.Dialling = 0
		m.OK(first, second)
		if refused != 3 || second.Took > 110*time.Millisecond {
			t.Errorf("%d dials were refused, the response came after %v", refused, second.Took)
		}
		m.Settled()
	})
	t.Run("the endpoint refuses", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		calls := m.Burst(5, 10)
		m.W.Run(50 * time.Millisecond)
		m.Apps[0].Stop()
		d.MaxDials, d.Dialling = 0, 0 // all are dialled for as soon as one dial has failed
		since := m.W.Now()
		m.Finish(calls...)
		if took := m.W.Now() - since; took > 200*time.Millisecond || busy.Done {
			t.Errorf("the requests have failed after %v, the connection that was open has ended: %t", took, busy.Done)
		}
		if n := proxytest.CountCodes(calls); n["upstream-connect"] != len(calls) {
			t.Errorf("responses %v", n)
		}
		m.Finish(busy)
		m.Settled()
	})
	t.Run("the callers disconnect", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		var clients []*proxytest.Client
		for range 10 {
			clients = append(clients, m.Do(m.Post(10)))
		}
		m.W.Run(50 * time.Millisecond)
		for _, c := range clients {
			c.Leave()
		}
		m.W.Run(50 * time.Millisecond)
		before := d.Refused
		m.W.Run(time.Second)
		if d.Refused != before {
			t.Errorf("%d dials without a caller", d.Refused-before)
		}
		d.Dialling = 0
		c := m.Post(10)
		m.Do(c)
		m.Finish(c, busy)
		m.OK(c, busy)
		if c.Took > 100*time.Millisecond {
			t.Errorf("response after %v, with room for its dial", c.Took)
		}
		m.Settled()
	})
	t.Run("the open connection is lost", func(t *testing.T) {
		m, d, busy := newFullDriverMesh(t)
		calls := m.Burst(200, 10)
		m.W.Run(50 * time.Millisecond)
		m.W.Faults.ResetAll(m.Consumer.Host, m.Apps[0].Host+"-app")
		m.Finish(append(calls, busy)...)
		if n := proxytest.CountCodes(calls); n["too-many-dials"] != len(calls) || busy.Code != "upstream-reset" {
			t.Errorf("responses %v, and %s, after %d dials were refused", n, busy.Code, d.Refused)
		}
		m.Settled()
	})
}

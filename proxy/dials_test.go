package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// dialler is a loop that counts dials, and has room for at most some at a time.
type dialler struct {
	proxy.Loop
	room      int // 0: without bound
	now, most int // under way
	all       int
	refused   int
	late      time.Duration // it says so only then
}

func (d *dialler) Dial(addr string, timeout time.Duration, s proxy.Stream) {
	if d.room > 0 && d.now == d.room {
		d.refused++
		d.After(d.late, &proxy.Timer{Fire: func() { s.OnClose(proxy.ErrDialQueue) }})
		return
	}
	d.now++
	d.all++
	d.most = max(d.most, d.now)
	d.Loop.Dial(addr, timeout, &dialled{Stream: s, d: d})
}

// dialled tells its dialler how the dial ended.
type dialled struct {
	proxy.Stream
	d    *dialler
	over bool
}

func (c *dialled) end() {
	if !c.over {
		c.over = true
		c.d.now--
	}
}

func (c *dialled) OnOpen(conn proxy.Conn) {
	c.end()
	c.Stream.OnOpen(conn)
}

func (c *dialled) OnClose(err error) {
	c.end()
	c.Stream.OnClose(err)
}

// diallingMesh has a consumer that calls applications without sidecars.
func diallingMesh(t *testing.T, room int, o meshOptions) (*mesh, *dialler) {
	d := &dialler{room: room}
	o.service += ", max_pending: 10000"
	o.dialler = func(l proxy.Loop) proxy.Loop {
		if d.Loop != nil {
			return l // of an application's sidecar
		}
		d.Loop = l
		return d
	}
	return newMesh(t, o), d
}

// TestRequestsWaitForConnections: of many requests at once most wait for what comes
// first, a connection that another has used or one of their own.
func TestRequestsWaitForConnections(t *testing.T) {
	const requests, dials = 1000, 128
	t.Run("all are answered", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		calls := m.burst(requests, 10)
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		if d.most != dials || d.all >= requests {
			t.Errorf("%d dials, %d at a time; want less than %d, %d at a time", d.all, d.most, requests, dials)
		}
	})
	t.Run("as many connections as it takes", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		m.apps[0].delay = func() time.Duration { return time.Second }
		calls := m.burst(requests, 10)
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		if d.most != dials || d.all != requests {
			t.Errorf("%d dials, %d at a time; want %d and %d", d.all, d.most, requests, dials)
		}
	})
	t.Run("connections that serve one request", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		m.apps[0].close = true
		calls := m.burst(requests, 10)
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		if d.all != requests {
			t.Errorf("%d dials for %d requests", d.all, requests)
		}
	})
	t.Run("the endpoint refuses", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		m.apps[0].stop()
		calls := m.burst(requests, 10)
		m.finish(calls...)
		if n := codes(calls); n["upstream-connect"] != requests {
			t.Errorf("answers %v", n)
		}
		m.settled()
	})
	t.Run("the endpoint is silent", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", retry: {on: []}"})
		m.w.Blackhole(m.apps[0].addr, true)
		calls := m.burst(requests, 10)
		m.finish(calls...)
		if n := codes(calls); n["upstream-connect"] != requests {
			t.Errorf("answers %v", n)
		}
		for _, c := range calls {
			if c.took > 2*250*time.Millisecond+10*time.Millisecond {
				t.Fatalf("told after %v, with a connect_timeout of 250 ms", c.took)
			}
		}
		m.settled()
	})
	t.Run("the endpoint takes no more connections", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", retry: {on: []}"})
		m.apps[0].delay = func() time.Duration { return 10 * time.Millisecond }
		first := m.burst(10, 10)
		m.finish(first...)
		m.ok(first...)
		m.w.Blackhole(m.apps[0].addr, true)
		calls := m.burst(700, 10) // ten connections serve a thousand in a second
		m.finish(calls...)
		if n := codes(calls); n[""]+n["upstream-connect"] != len(calls) || n["upstream-connect"] > 2*dials {
			t.Errorf("answers %v: more have failed than were dialled for", n)
		}
		m.settled()
	})
	t.Run("the endpoint is silent, one has come late", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", retry: {on: []}"})
		m.w.Blackhole(m.apps[0].addr, true)
		calls, late := m.burst(dials, 10), m.post(10)
		m.w.RunUntil(func() bool { return false }, 200*time.Millisecond)
		m.do(late)
		m.finish(append(calls, late)...)
		if late.took < 250*time.Millisecond {
			t.Errorf("told after %v, with a connect_timeout of 250 ms", late.took)
		}
		m.settled()
	})
	t.Run("others become free meanwhile", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", retry: {on: []}"})
		m.apps[0].delay = func() time.Duration { return 200 * time.Millisecond }
		first := m.burst(10, 10)
		m.finish(first...)
		m.w.Blackhole(m.apps[0].addr, true)
		calls := m.burst(6*dials, 10)
		m.finish(calls...)
		var last time.Duration
		for _, c := range calls {
			last = max(last, c.took)
		}
		if last < time.Second { // of 128 dials after another
			t.Errorf("none has waited for more than %v", last)
		}
		m.settled()
	})
	t.Run("their callers go away", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		m.apps[0].delay = func() time.Duration { return time.Second }
		var clients []*client
		for range requests {
			clients = append(clients, m.do(m.post(10)))
		}
		if !m.w.RunUntil(func() bool { return d.most == dials && m.consumer.proc.Pending() > 2*dials }, time.Second) {
			t.Fatal("nobody waits")
		}
		for _, c := range clients {
			m.clients.Do(func() { c.conn.Close() })
		}
		m.settled()
	})
	t.Run("the deadline passes", func(t *testing.T) {
		m, _ := diallingMesh(t, 0, meshOptions{apps: 1, direct: true, service: ", timeout: 100ms"})
		m.w.Blackhole(m.apps[0].addr, true)
		calls := m.burst(requests, 10)
		m.finish(calls...)
		if n := codes(calls); n["deadline"] != requests {
			t.Errorf("answers %v", n)
		}
		m.settled()
	})
	t.Run("the endpoint leaves", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{apps: 1, direct: true})
		calls := m.burst(requests, 10)
		if !m.w.RunUntil(func() bool { return d.most == dials && m.consumer.proc.Pending() > 2*dials }, time.Second) {
			t.Fatal("nobody waits")
		}
		taken := m.consumer.proc.Pending()
		m.consumer.update("compute")
		m.finish(calls...)
		if n := codes(calls); n[""] < taken || n[""]+n["no-endpoint"] != requests {
			t.Errorf("answers %v, with %d pending when it left", n, taken)
		}
		m.settled()
	})
}

// TestDialQueueIsFull: a request for whose connection the driver has no room goes to
// another endpoint for free, or waits for a connection that is there; else it is
// refused with a code of its own, and the endpoint is not to blame.
func TestDialQueueIsFull(t *testing.T) {
	const outlier = ", outlier: {consecutive: 1}"
	blameless := func(t *testing.T, m *mesh) {
		t.Helper()
		for _, e := range m.consumer.report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("%s is ejected", e.Addr)
			}
		}
		if s := m.consumer.stats("compute"); s.RetriesPaid+s.RetriesOverBudget > 0 {
			t.Errorf("%d retries paid, %d over budget", s.RetriesPaid, s.RetriesOverBudget)
		}
	}
	for name, direct := range map[string]bool{"http": true, "link": false} {
		t.Run("no connection, "+name, func(t *testing.T) {
			m, d := diallingMesh(t, 1, meshOptions{apps: 1, direct: direct, service: outlier})
			d.now = 1 // somebody else's
			calls := m.burst(10, 10)
			m.finish(calls...)
			if n := codes(calls); n["too-many-dials"] != len(calls) {
				t.Errorf("answers %v", n)
			}
			blameless(t, m)
			m.settled()
			d.now = 0
			c := m.post(10)
			m.do(c)
			m.finish(c)
			m.ok(c)
		})
	}
	t.Run("one that becomes free", func(t *testing.T) {
		m, d := diallingMesh(t, 1, meshOptions{apps: 1, direct: true, service: outlier})
		first := m.post(10)
		m.do(first)
		m.finish(first)
		d.now = 1
		calls := m.burst(10, 10)
		m.finish(calls...)
		m.ok(calls...)
		if d.all != 1 || d.refused == 0 || d.refused > 20 {
			t.Errorf("%d connections, %d dials refused", d.all, d.refused)
		}
		blameless(t, m)
		m.settled()
	})
	t.Run("one that became free", func(t *testing.T) {
		m, d := diallingMesh(t, 1, meshOptions{apps: 1, direct: true, service: outlier})
		m.apps[0].delay = func() time.Duration { return 50 * time.Millisecond }
		first, second := m.post(10), m.post(10)
		m.do(first)
		m.until("a connection", func() bool { return d.all == 1 && d.now == 0 })
		d.now, d.late = 1, 100*time.Millisecond
		m.do(second)
		m.finish(first, second)
		m.ok(first, second)
		if second.took > time.Second {
			t.Errorf("it has waited for %v", second.took)
		}
		blameless(t, m)
		m.settled()
	})
	t.Run("one that closes", func(t *testing.T) {
		m, d := diallingMesh(t, 1, meshOptions{apps: 1, direct: true, service: outlier})
		m.apps[0].close = true
		m.apps[0].delay = func() time.Duration { return 50 * time.Millisecond }
		first, second := m.post(10), m.post(10)
		m.do(first)
		m.until("a connection", func() bool { return d.all == 1 && d.now == 0 })
		d.now = 1
		m.do(second)
		m.until("the other to wait", func() bool { return d.refused == 1 })
		d.now = 0
		m.finish(first, second)
		m.ok(first, second)
		blameless(t, m)
		m.settled()
	})
	t.Run("elsewhere", func(t *testing.T) {
		m, d := diallingMesh(t, 1, meshOptions{apps: 2, direct: true, service: outlier + ", lb: {policy: weighted_round_robin, slow_start: 0s}"})
		m.consumer.update("compute", m.endpoint(1))
		first := m.post(10)
		m.do(first)
		m.finish(first)
		m.consumer.update("compute", m.endpoint(0), m.endpoint(1))
		d.now = 1
		for range 10 {
			c := m.post(10)
			m.do(c)
			m.finish(c)
			m.ok(c)
		}
		if d.refused == 0 {
			t.Error("no dial was refused")
		}
		blameless(t, m)
		m.settled()
	})
}

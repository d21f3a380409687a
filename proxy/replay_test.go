package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// poison has each application crash, or do what crash does, when it reads a request
// for /poison, and returns how many have.
func (m *mesh) poison(crash func(a *app)) (killed *int) {
	if crash == nil {
		crash = func(a *app) { m.w.At(m.w.Now(), func() { m.w.Crash(a.loop) }) }
	}
	killed = new(int)
	for _, a := range m.apps {
		a.seen = func(req *protocol.Request) {
			if string(req.Path) == "/poison" {
				*killed++
				crash(a)
			}
		}
	}
	return killed
}

// inTurn has requests go to each application in turn.
const inTurn = ", lb: {policy: weighted_round_robin, slow_start: 0s}"

// warmEach has every application answer n requests at once, so that as many
// connections to it are open and wait for the next one.
func (m *mesh) warmEach(n int) {
	m.t.Helper()
	calls := m.burst(n*len(m.apps), 10)
	m.finish(calls...)
	m.ok(calls...)
	for i, a := range m.apps {
		if a.served != n {
			m.t.Fatalf("application %d has served %d, want %d", i, a.served, n)
		}
	}
}

// A request that an application has read, and that is sent again for its connection
// was used before, counts as one that may have been processed when it can't be sent
// again either: it does not go on to end the next application.
func TestReplayInVain(t *testing.T) {
	told := func(t *testing.T, m *mesh, killed int, c *call) {
		t.Helper()
		if killed != 1 || c.status != 502 || c.code != "upstream-reset" {
			t.Errorf("%d applications have ended, status %d %s, want one and 502 upstream-reset", killed, c.status, c.code)
		}
		if s := m.consumer.stats("compute"); s.Retries != 0 {
			t.Errorf("%d retries", s.Retries)
		}
		m.settled()
	}
	eachTopology(t, meshOptions{service: inTurn}, func(t *testing.T, m *mesh) {
		m.warmEach(1)
		killed, c := m.poison(nil), m.get("/poison")
		m.do(c)
		m.finish(c)
		told(t, m, *killed, c)
	})
	t.Run("no room for the dial", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{direct: true, service: inTurn + ", outlier: {consecutive: 1}"})
		m.warmEach(1)
		d.room, d.now = 1, 1 // somebody else's
		killed, c := m.poison(nil), m.get("/poison")
		m.do(c)
		m.finish(c)
		told(t, m, *killed, c)
		for i, e := range m.consumer.report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("endpoint %d is ejected for want of room here", i)
			}
		}
	})
	t.Run("no room for the dial, but other connections", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{direct: true, apps: 1})
		m.warmEach(3)
		m.apps[0].delay = func() time.Duration { return time.Second }
		busy := m.get("/")
		m.do(busy)
		m.w.Run(100 * time.Millisecond)
		d.room, d.now = 1, 1
		killed, c := m.poison(func(a *app) { a.dropNext = true }), m.get("/poison")
		m.do(c)
		m.finish(c, busy)
		m.ok(busy)
		if *killed != 2 || c.code != "upstream-reset" {
			t.Errorf("%d connections have ended of it, status %d %s, want two and upstream-reset", *killed, c.status, c.code)
		}
		m.settled()
	})
	t.Run("no connection in time", func(t *testing.T) {
		m, d := diallingMesh(t, 0, meshOptions{direct: true, apps: 1, service: ", outlier: {consecutive: 100}"})
		m.warmEach(2)
		m.apps[0].delay = func() time.Duration { return 10 * time.Second }
		busy := m.get("/")
		m.do(busy)
		m.w.Run(100 * time.Millisecond)
		m.poison(func(a *app) { a.dropNext = true; a.stop() })
		c := m.get("/poison")
		d.room, d.now = 1, 1
		m.do(c)
		m.until("a dial that is refused", func() bool { return d.refused > 0 })
		d.room = 0
		m.w.Run(time.Second)
		next := m.get("/") // whose dial says that nothing comes of the others
		m.do(next)
		m.finish(next, c)
		if c.status != 502 || c.code != "upstream-reset" || next.code != "upstream-connect" {
			t.Errorf("status %d %s, and %s for the next, want upstream-reset and upstream-connect", c.status, c.code, next.code)
		}
		m.finish(busy)
		m.ok(busy)
		m.settled()
	})
	t.Run("what the other sidecar is told", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1})
		w := link.NewWriter()
		w.Preface(link.Dialer, link.Settings{})
		w.Open(1, link.Settings{})
		p := &peer{says: w.Append(nil, 1<<20)}
		m.visit(p)
		m.until("a link", func() bool { return p.conn != nil })
		ask := func(id uint64, path string) {
			w.Request(id, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte(path), Authority: []byte("local")}, time.Minute, nil)
			m.clients.Do(func() { p.conn.Write(w.Append(nil, 1<<20)) })
		}
		ask(1, "/")
		m.until("an answer", func() bool { return m.apps[0].served == 1 })
		m.poison(nil)
		ask(2, "/poison")
		m.settled()
		m.w.Run(time.Second)
		got := &refusals{why: map[link.Reason]int{}}
		if err := link.NewReader(link.Dialer, link.Settings{}, link.ReaderLimits{}).Feed(p.heard, got); err != nil {
			t.Fatal(err)
		}
		if got.why[link.UpstreamReset] != 1 || len(got.why) > 1 {
			t.Errorf("refused for %v, want %d", got.why, link.UpstreamReset)
		}
	})
	// What retry.on says of resets holds for it.
	t.Run("retried as a reset", func(t *testing.T) {
		m := newMesh(t, meshOptions{direct: true, service: inTurn + ", retry: {on: [reset]}, hedge: {budget: 1}"})
		m.warmEach(1)
		killed, c := m.poison(nil), m.get("/poison")
		m.do(c)
		m.finish(c)
		if s := m.consumer.stats("compute"); *killed != 2 || s.RetriesPaid != 1 || c.code != "upstream-reset" {
			t.Errorf("%d applications have ended, %d retries paid, status %d %s", *killed, s.RetriesPaid, c.status, c.code)
		}
		m.settled()
	})
}

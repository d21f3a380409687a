package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// inTurn is the setting that sends requests to each application in turn.
const inTurn = "lb: {policy: weighted_round_robin, slow_start: 0s}"

const noResets = "retry: {on: [connect, refused]}"

// TestReplayFails: a request that an application has received is sent again if its
// connection was used before. If that fails too, the request counts as maybe processed. Without
// `reset` it is not sent to the next application, which it could crash as well.
func TestReplayFails(t *testing.T) {
	wantReset := func(t *testing.T, m *proxytest.Mesh, killed int, c *proxytest.Call) {
		t.Helper()
		if killed != 1 || c.Status != 502 || c.Code != "upstream-reset" {
			t.Errorf("%d applications have crashed, status %d %s, want one and 502 upstream-reset", killed, c.Status, c.Code)
		}
		if s := m.Consumer.Stats("compute"); s.Retries != 0 {
			t.Errorf("%d retries", s.Retries)
		}
		m.Settled()
	}
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.Fields(inTurn, noResets), Provider: noResets}, func(t *testing.T, m *proxytest.Mesh) {
		m.WarmUpEach(1)
		killed, c := m.Apps.CrashOnPoison(nil), m.Get("/poison")
		m.Complete(c)
		wantReset(t, m, *killed, c)
	})
	t.Run("no room for the dial", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{OneHop: true, Service: proxytest.Fields(inTurn, noResets, "outlier: {consecutive: 1}")})
		m.WarmUpEach(1)
		d.MaxDials, d.Dialling = 1, 1 // a dial of another service
		killed, c := m.Apps.CrashOnPoison(nil), m.Get("/poison")
		m.Complete(c)
		wantReset(t, m, *killed, c)
		for i, e := range m.Consumer.Report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("endpoint %d is ejected for a limit of dials here", i)
			}
		}
	})
	t.Run("no room for the dial, but other connections", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{OneHop: true, Apps: 1, Service: noResets})
		m.WarmUpEach(3)
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		busy := m.Get("/")
		m.Do(busy)
		m.W.Run(100 * time.Millisecond)
		d.MaxDials, d.Dialling = 1, 1
		killed, c := m.Apps.CrashOnPoison(func(a *proxytest.App) { a.DropNext = true }), m.Get("/poison")
		m.Do(c)
		m.Finish(c, busy)
		m.OK(busy)
		if *killed != 2 || c.Code != "upstream-reset" {
			t.Errorf("it closed %d connections, status %d %s, want two and upstream-reset", *killed, c.Status, c.Code)
		}
		m.Settled()
	})
	t.Run("no connection in time", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{OneHop: true, Apps: 1, Service: "outlier: {consecutive: 100}"})
		m.WarmUpEach(2)
		m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
		busy := m.Get("/")
		m.Do(busy)
		m.W.Run(100 * time.Millisecond)
		m.Apps.CrashOnPoison(func(a *proxytest.App) { a.DropNext = true; a.Stop() })
		c := m.Get("/poison")
		d.MaxDials, d.Dialling = 1, 1
		m.Do(c)
		m.RunUntil("a dial that is refused", func() bool { return d.Refused > 0 })
		d.MaxDials = 0
		m.W.Run(time.Second)
		next := m.Get("/") // its dial fails, and so do the waiting dials
		m.Do(next)
		m.Finish(next, c)
		if c.Status != 502 || c.Code != "upstream-reset" || next.Code != "upstream-connect" {
			t.Errorf("status %d %s, and %s for the next, want upstream-reset and upstream-connect", c.Status, c.Code, next.Code)
		}
		m.OK(busy)
		m.Settled()
	})
	t.Run("reason for the other sidecar", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		w, p := m.DialLink()
		ask := func(id uint64, path string) {
			w.Request(id, &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte(path), Authority: []byte("local")}, time.Minute, nil)
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		}
		ask(1, "/")
		m.RunUntil("a response", func() bool { return m.Apps[0].Served == 1 })
		m.Apps.CrashOnPoison(nil)
		ask(2, "/poison")
		m.Settled()
		m.W.Run(time.Second)
		got := &proxytest.Refusals{Why: map[link.Reason]int{}}
		if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, got).Feed(p.Heard); err != nil {
			t.Fatal(err)
		}
		if got.Why[link.UpstreamReset] != 1 || len(got.Why) > 1 {
			t.Errorf("refused for %v, want %d", got.Why, link.UpstreamReset)
		}
	})
	// retry.on holds for its resets, and has them by default.
	t.Run("retried as a reset", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Service: inTurn})
		m.WarmUpEach(1)
		killed, c := m.Apps.CrashOnPoison(nil), m.Get("/poison")
		m.Complete(c)
		// The retry is paid, as is the replay at the second application.
		if s := m.Consumer.Stats("compute"); *killed != 2 || s.RetriesPaid != 2 || c.Code != "upstream-reset" {
			t.Errorf("%d applications have crashed, %d retries paid, status %d %s", *killed, s.RetriesPaid, c.Status, c.Code)
		}
		m.Settled()
	})
}

// TestReplaysOfFewRequests: a server may close an idle connection just when it is used again, each time (RFC
// 9112 section 9.3.1). A few requests that meet that don't fail, although they earn no token.
func TestReplaysOfFewRequests(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		seen := 0
		m.Apps[0].OnRequest = func(*protocol.Request) {
			seen++
			m.Apps[0].DropNext = seen%2 == 0 // each one on a connection that was used before
		}
		for range 50 {
			c := m.Complete(m.Get("/"))
			m.OK(c)
			m.W.Run(2 * time.Second)
		}
		if m.Settled(); seen != 99 {
			t.Errorf("the application got %d requests", seen)
		}
	})
}

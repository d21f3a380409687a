package http2_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// appConn notes the end of an application in a connection.
type appConn struct {
	loop.Receiver
	conn **proxytest.NullConn
}

func (n appConn) OnOpen(c loop.Conn) {
	*n.conn = c.(*proxytest.NullConn)
	n.Receiver.OnOpen(c)
}

// TestRequestsOfTurnAreWrittenTogether: the first request on an idle connection is written at once, and those that follow in the same turn
// are written together. Requests that have waited for the connection are written together, too.
func TestRequestsOfTurnAreWrittenTogether(t *testing.T) {
	for _, c := range []struct {
		name     string
		idle     bool // there is a connection
		requests int
		want     int // writes
	}{
		{"a request that waits", false, 1, 2}, // behind the preface
		{"requests that wait", false, 5, 2},
		{"a request", true, 1, 1},
		{"requests", true, 5, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			const addr = "10.0.0.1:8080"
			m := newAllocMesh(t, c.requests)
			var app *proxytest.NullConn
			accept := m.Net.Accept[addr]
			m.Net.Accept[addr] = func() (*proxytest.NullLoop, loop.Receiver) {
				l, r := accept()
				return l, appConn{r, &app}
			}
			m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
			m.Net.Pump()
			call := func() { m.Call([]byte(proxytest.ShapeBody), []byte(proxytest.GetHead)) }
			before := 0
			if c.idle {
				call()
				before = app.Peer.Writes
			}
			call()
			if app == nil {
				t.Fatal("nothing was dialled")
			}
			if n := app.Peer.Writes - before; n != c.want {
				t.Errorf("%d requests were written by %d writes, want %d", c.requests, n, c.want)
			}
		})
	}
}

// TestWaitingOutputFollows: requests wait while their endpoint does not read. Once it reads again it gets all of them, although it
// says nothing.
func TestWaitingOutputFollows(t *testing.T) {
	const requests = 60
	m, apps := newMesh(t, 1, "timeout: 5s, max_pending: 1000, retry: {on: []}")
	a := apps[0]
	a.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
	first := m.Post(10)
	m.Do(first)
	m.W.Run(100 * time.Millisecond)
	if p.Conn == nil {
		t.Fatal("there is no connection")
	}
	calls := append(flood(m, p.Conn, requests, false), first)
	if n := len(headsOf(p.Heard)); n != 1 {
		t.Errorf("an endpoint that does not read got %d requests, want the first", n)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.W.Run(time.Second)
	if n := len(headsOf(p.Heard)); n != requests+1 {
		t.Errorf("the endpoint got %d requests, want %d", n, requests+1)
	}
	m.Finish(calls...)
	m.Settled()
}

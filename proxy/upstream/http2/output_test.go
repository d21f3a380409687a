package http2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
)

// writesLoop is a loop that notes what is written to an address, one element for each call.
type writesLoop struct {
	loop.Loop
	addr   string
	writes [][]byte
}

func (l *writesLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	if addr == l.addr {
		r = writesReceiver{r, l}
	}
	l.Loop.Dial(addr, timeout, r)
}

type writesReceiver struct {
	loop.Receiver
	l *writesLoop
}

func (r writesReceiver) OnOpen(c loop.Conn) { r.Receiver.OnOpen(writesConn{c, r.l}) }

type writesConn struct {
	loop.Conn
	l *writesLoop
}

func (c writesConn) Write(b []byte) {
	c.l.writes = append(c.l.writes, append([]byte(nil), b...))
	c.Conn.Write(b)
}

// TestWrites: the first request on a connection is written at once, and those that follow in the same turn together. So are those that have waited for the connection.
func TestWrites(t *testing.T) {
	const idle, opening = 1, 0 // requests before
	for _, c := range []struct {
		name             string
		before, requests int
		want             int // writes
	}{
		{"a request that waits", opening, 1, 2}, // behind the preface
		{"requests that wait", opening, 5, 2},
		{"a request", idle, 1, 1},
		{"requests", idle, 5, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &writesLoop{}
			diallers := 0
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Speaks: "http2",
				Dialler: func(of loop.Loop) loop.Loop {
					if diallers++; diallers != 2 { // the provider's is the second
						return of
					}
					l.Loop = of
					return l
				}})
			a := startApps(m)[0]
			a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) {}
			l.addr = a.of.Addr
			w, p := m.DialLink()
			send := func(first, n int) {
				for id := range n {
					w.Request(uint64(first+id), proxytest.LinkRequest, time.Minute, nil)
				}
				m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
				m.W.Run(100 * time.Millisecond)
			}
			if c.before > 0 {
				a.onCall = nil
				send(1, 1)
				a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) {}
				l.writes = nil
			}
			m.W.Options.Cut = 0
			send(c.before+1, c.requests)
			if len(l.writes) != c.want || a.calls != c.before+c.requests {
				t.Errorf("%d requests were written by %d writes, want %d", a.calls-c.before, len(l.writes), c.want)
			}
		})
	}
}

// TestOutputGoesOn: an endpoint that reads again gets all requests that have waited for that, although it says nothing.
func TestOutputGoesOn(t *testing.T) {
	const requests = 60
	m, apps := newMesh(t, 1, "timeout: 60s, max_pending: 1000")
	a := apps[0]
	a.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
	first := m.Do(m.Post(10))
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.PauseReading(p.Conn, true)
	clients := []*proxytest.Client{first}
	for range requests { // more than the connection takes
		clients = append(clients, m.Do(m.Get("/", "X: "+strings.Repeat("x", 20<<10))))
		m.W.Run(time.Millisecond)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.W.Run(time.Second)
	if n := len(headsOf(p.Heard)); n != requests+1 {
		t.Errorf("the endpoint got %d requests, want %d", n, requests+1)
	}
	for _, c := range clients {
		c.Leave()
	}
}

// TestCloseFreesOutput: a connection that closes frees the memory of what it has not sent at once.
func TestCloseFreesOutput(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 60s, retry: {on: []}"})
	a := startApps(m)[0]
	m.OK(do(m))
	calls := flood(m, a, 50, false)
	m.W.Run(time.Second)
	if n := m.Consumer.Proc.Buffered(); n < mux.MaxOutbound {
		t.Errorf("%d bytes are counted with %d or more in the buffer of the connection", n, mux.MaxOutbound)
	}
	m.Consumer.Loop.Do(d.Receivers[0].(shard.Holder).CloseNow)
	m.W.Run(10 * time.Millisecond)
	if n := m.Consumer.Proc.Buffered(); n > 64<<10 { // which are not counted at once
		t.Errorf("%d bytes are counted without a connection", n)
	}
	m.Finish(calls...)
	m.Settled()
}

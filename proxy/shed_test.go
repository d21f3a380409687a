package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestShedIdle: the source with the most connections loses idle ones first, and those that were
// idle longest. One that is busy, or was idle for less than a second, stays.
func TestShedIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Egress: "10.0.0.1:15001"})
	m.Apps[0].Delay = func() time.Duration { return time.Minute }
	dial := func(host, says string, n int) (all []*proxytest.Peer) {
		from := m.W.Loop(host)
		for range n {
			p := &proxytest.Peer{Says: []byte(says)}
			from.Do(func() { from.Dial(proxytest.Egress, time.Second, p) })
			all = append(all, p)
		}
		m.W.Run(100 * time.Millisecond)
		return all
	}
	ended := func(all []*proxytest.Peer) (n int) {
		for _, p := range all {
			if p.Ended {
				n++
			}
		}
		return n
	}
	busy := dial("10.0.2.1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2)
	older := dial("10.0.2.1", "", 20)
	newer := dial("10.0.2.1", "", 10)
	few := dial("10.0.2.2", "", 8)
	m.W.Run(time.Second)
	fresh := dial("10.0.2.1", "", 2)
	shed := func() {
		m.Consumer.Proc.ShedIdle()
		m.W.Run(100 * time.Millisecond)
	}

	shed() // a twentieth of 42, and one
	if n := ended(older); n != 3 {
		t.Errorf("%d of the oldest were closed, want 3", n)
	}
	for range 7 {
		shed()
	}
	if o, n, f := ended(older), ended(newer), ended(few); o != 17 || n+f > 0 {
		t.Errorf("closed: %d of 20 older, %d newer, %d of another source", o, n, f)
	}
	if ended(busy) != 0 || ended(fresh) != 0 {
		t.Errorf("%d busy and %d fresh connections were closed", ended(busy), ended(fresh))
	}
	for range 40 {
		if shed(); ended(few) > 0 {
			break
		}
	}
	if open := 34 - ended(older) - ended(newer) - ended(fresh); open > 8 || ended(few) != 1 {
		t.Errorf("%d of the other source's 8 were closed, while the first had %d", ended(few), open)
	}
	for range 40 {
		shed()
	}
	if n := ended(older) + ended(newer) + ended(few) + ended(fresh); n != 40 || ended(busy) != 0 {
		t.Errorf("in the end %d of 40 idle ones were closed, and %d busy ones", n, ended(busy))
	}
}

// TestShedIdleUnread: a loop that is late does not take a connection for idle whose next request waits in the kernel.
func TestShedIdleUnread(t *testing.T) {
	for name, c := range map[string]struct{ addr, hello, request string }{
		"HTTP/1.1": {addr: proxytest.Egress, request: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		"HTTP/2":   {proxytest.Egress, http2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a"},
		"Dubbo": {
			addr:    proxytest.EgressDubbo,
			request: string(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Event: true})),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
			clients, all := m.W.Loop("10.0.2.1"), []*proxytest.Peer(nil)
			for range 30 {
				p := &proxytest.Peer{Says: []byte(c.hello)}
				clients.Do(func() { clients.Dial(c.addr, time.Second, p) })
				all = append(all, p)
			}
			m.W.Run(2 * time.Second)
			m.W.Faults.Pause(m.Consumer.Loop, 100*time.Millisecond)
			for _, p := range all[1:] {
				clients.Do(func() { p.Conn.Write([]byte(c.request)) })
			}
			m.W.Run(50 * time.Millisecond)
			for range 10 {
				m.Consumer.Proc.ShedIdle()
			}
			m.W.Run(time.Second)
			if !all[0].Ended {
				t.Error("a connection that is idle was not closed")
			}
			for i, p := range all[1:] {
				if p.Ended {
					t.Errorf("connection %d was closed with a request unread", i+1)
				}
			}
		})
	}
}

// TestShedIdleReload: a connection is as idle after a change of timeouts.idle as before.
func TestShedIdleReload(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	client := m.Dial(proxytest.Egress)
	m.RunUntil("the connection", func() bool { return client.Conn != nil })
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s}") + "\ntimeouts: {idle: 1h}")
	m.Consumer.Proc.ShedIdle()
	m.W.Run(100 * time.Millisecond)
	if client.Ended {
		t.Error("a connection was closed that was idle for less than a second")
	}
	m.W.Run(time.Second)
	m.Consumer.Proc.ShedIdle()
	m.W.Run(100 * time.Millisecond)
	if !client.Ended {
		t.Error("an idle connection is open")
	}
	m.Settled()
}

package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestShedIdle: the source with the most connections loses idle ones first, and those that were
// idle longest. One that is busy, or was idle for less than a second, stays.
func TestShedIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Direct: true, Egress: "10.0.0.1:15001"})
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

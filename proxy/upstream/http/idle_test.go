package http_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// impatientServer closes each connection that is idle for so long.
func impatientServer(m *proxytest.Mesh, idle time.Duration) (connections *int) {
	connections = new(int)
	m.Apps[0].Stop()
	app := m.W.Loop("10.0.1.1-raw")
	m.W.Net.Listen(m.Apps[0].Addr, app, func() loop.Receiver {
		*connections++
		p := &proxytest.Peer{}
		requests := 0
		p.Reply = func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\nxx")) {
				return nil
			}
			requests++
			last := requests
			m.W.At(m.W.Now()+idle, func() {
				if last == requests && !p.Ended {
					app.Do(p.Conn.Close)
				}
			})
			return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		return p
	})
	return connections
}

// TestIdleConnectionsOfImpatientServer: a server closes idle connections, just when requests come that may not be
// sent twice. None of them fails, whatever the server's idle timeout is, known or not.
func TestIdleConnectionsOfImpatientServer(t *testing.T) {
	for _, idle := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 5 * time.Second} {
		for _, policy := range []string{"idempotent: false", "idempotent: true, retry: {on: []}"} {
			t.Run(idle.String()+" "+policy, func(t *testing.T) {
				proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: policy, Provider: policy}, func(t *testing.T, m *proxytest.Mesh) {
					impatientServer(m, idle)
					for early := time.Duration(0); early < 2*time.Millisecond; early += 50 * time.Microsecond {
						call := m.Post(2)
						call.Nonce = ""
						m.Do(call)
						m.Finish(call)
						if call.Status != 200 {
							t.Fatalf("%v before the server closes: %d %s", early, call.Status, call.Code)
						}
						m.W.Run(idle - early)
					}
				})
			})
		}
	}
}

// TestIdleConnectionsOfPatientServer: once a server has kept a connection for idle_timeout, requests that may not
// be sent twice take connections that have been idle for as long.
func TestIdleConnectionsOfPatientServer(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	connections := impatientServer(m, time.Hour)
	for i, want := range []int{1, 2, 2, 2, 2, 2} { // the first is swept before the third request
		call := m.Post(2)
		call.Nonce = ""
		m.Do(call)
		m.Finish(call)
		m.OK(call)
		if *connections != want {
			t.Fatalf("%d connections after request %d, want %d", *connections, i, want)
		}
		m.W.Run(2 * time.Second)
	}
	m.W.Run(1900 * time.Millisecond) // just below idle_timeout
	call := m.Post(2)
	call.Nonce = ""
	if m.OK(m.Complete(call)); *connections != 2 {
		t.Errorf("%d connections after a request that came just before idle_timeout, want 2", *connections)
	}
}

// TestIdleConnectionsOfFailingServer: a server that fails at a request says nothing about how long it keeps idle
// connections.
func TestIdleConnectionsOfFailingServer(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
	m.Apps[0].Stop()
	app, connections, requests := m.W.Loop("10.0.1.1-raw"), 0, 0
	m.W.Net.Listen(m.Apps[0].Addr, app, func() loop.Receiver {
		connections++
		p := &proxytest.Peer{}
		p.Reply = func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\nxx")) {
				return nil
			}
			if requests++; requests == 2 {
				m.W.At(m.W.Now()+400*time.Millisecond, func() { app.Do(p.Conn.Close) })
				return nil
			}
			return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		return p
	})
	for i, want := range []int{1, 1, 2, 2, 2} {
		call := m.Post(2)
		call.Nonce = ""
		m.Do(call)
		m.Finish(call)
		if ok := call.Status == 200; ok != (i != 1) || connections != want {
			t.Fatalf("request %d: status %d, %d connections, want %d", i, call.Status, connections, want)
		}
		if i > 1 {
			m.W.Run(700 * time.Millisecond)
		}
	}
}

// TestWriteTimeoutOfIdleConnection: a connection that the sidecar closes itself, since the server takes no more of a
// request, is not stale, and says nothing about how long the server keeps idle connections.
func TestWriteTimeoutOfIdleConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{
		Apps: 1, OneHop: true, Limits: "timeouts: {write: 1s}", Service: "timeout: 20s, idempotent: methods, retry: {on: [connect]}",
	})
	m.Apps[0].Stop()
	var peers []*proxytest.Peer
	m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
		p := &proxytest.Peer{}
		p.Reply = func(heard []byte) []byte {
			if bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
				return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			return nil
		}
		peers = append(peers, p)
		return p
	})
	do := func(c *proxytest.Call) *proxytest.Call {
		c.Nonce = ""
		m.Do(c)
		m.Finish(c)
		return c
	}
	m.OK(do(m.Get("/")))
	m.W.Run(300 * time.Millisecond)
	m.W.Faults.PauseReading(peers[0].Conn, true)
	put := m.Post(2 << 20)
	put.Raw = bytes.Replace(put.Raw, []byte("POST"), []byte("PUT"), 1)
	do(put)
	if put.Code != "upstream-reset" || len(peers) != 1 {
		t.Errorf("status %d %s, %d connections", put.Status, put.Code, len(peers))
	}
	if n := m.Consumer.Report().Stats.Replays; n != 0 {
		t.Errorf("%d replays, want none", n)
	}
	// A request that may not be sent twice still takes a connection that was idle for 900 ms.
	m.OK(do(m.Get("/")))
	m.W.Run(900 * time.Millisecond)
	before := len(peers)
	post := m.Raw("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 0\r\n\r\n")
	m.OK(do(post))
	if len(peers) != before {
		t.Error("the server's idle timeout is taken for shorter than it is")
	}
}

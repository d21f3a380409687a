package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestIdleWithInput: whatever closes idle connections, a request that has arrived and that its loop has not read gets
// a response.
func TestIdleWithInput(t *testing.T) {
	const (
		request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		clients = 20
		idle    = 5 * time.Second
	)
	remove := func(m *proxytest.Mesh) {
		m.Consumer.Reload(`
listeners: [{name: other, address: "127.0.0.1:15002", protocol: http}]
routes: [{service: next}]
services: {next: {discover: static, endpoints: ["10.0.9.9:1"], protocol: link}}`)
	}
	for _, c := range []struct {
		name     string
		listener string
		first    bool                    // each connection has had a request
		wait     time.Duration           // from the last request to the pause of the loop
		before   func(m *proxytest.Mesh) // before wait
		during   func(m *proxytest.Mesh) // while the loop is late
	}{
		{name: "drain", first: true, during: func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() }},
		{name: "drain, no request before", during: func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() }},
		{
			name: "drain, at the end of the wait for the first request", wait: time.Second - 2*time.Millisecond,
			before: func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() },
		},
		{
			name: "hot restart", first: true, before: func(m *proxytest.Mesh) { m.Consumer.Proc.Retire() }, wait: time.Second,
			during: func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() },
		},
		{name: "reload without the listener", first: true, during: remove},
		{name: "reload without the listener and its service", listener: "service: compute", first: true, during: remove},
		{name: "overload", first: true, wait: 2 * time.Second, during: func(m *proxytest.Mesh) {
			for range clients {
				m.Consumer.Proc.ShedIdle()
			}
		}},
		{name: "timeouts.idle", first: true, wait: idle - 2*time.Millisecond},
		{name: "timeouts.idle, no request before", wait: idle - 2*time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(5) {
				m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Listener: c.listener, Limits: "timeouts: {idle: 5s}"})
				peers := make([]*proxytest.Peer, clients)
				for i := range peers {
					peers[i] = m.DialAndSend(proxytest.Egress, "")
				}
				m.RunUntil("the connections", func() bool {
					for _, p := range peers {
						if p.Conn == nil {
							return false
						}
					}
					return true
				})
				send := func() {
					m.Clients.Do(func() {
						for _, p := range peers {
							p.Conn.Write([]byte(request))
						}
					})
				}
				responses := func() (n int) {
					for _, p := range peers {
						n += bytes.Count(p.Heard, []byte("HTTP/1.1 "))
					}
					return n
				}
				want := clients
				if c.first {
					want += clients
					send()
					m.RunUntil("the first responses", func() bool { return responses() == clients })
				}
				if c.before != nil {
					c.before(m)
				}
				m.W.Run(c.wait)
				m.W.Faults.Pause(m.Consumer.Loop, 10*time.Millisecond)
				send()
				if c.during != nil {
					c.during(m)
				}
				m.W.Run(3 * time.Second)
				if n := responses(); n != want {
					t.Fatalf("seed %d: %d responses, want %d", seed, n, want)
				}
				m.Consumer.Proc.Drain()
				m.RunUntil("the connections to close", func() bool {
					for _, p := range peers {
						if !p.Ended {
							return false
						}
					}
					return true
				})
				m.Settled()
			}
		})
	}
}

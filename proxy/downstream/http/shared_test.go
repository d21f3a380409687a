package http_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestSharedBodies: clients that read slowly share the bytes of a long response, but for what their
// connections have. All get it in the end, also with requests behind it.
func TestSharedBodies(t *testing.T) {
	const size, clients = 2 << 20, 20
	for name, c := range map[string]struct {
		route string
		warm  bool
	}{
		"cached":    {"cache: {ttl: 1m}", true},
		"collapsed": {"collapse: true", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: c.route})
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			m.Apps[0].Body = func(*protocol.Request) []byte { return body }
			m.Apps[0].Delay = func() time.Duration { return 10 * time.Millisecond }
			if c.warm {
				first := m.Get("/x").Same()
				m.Do(first)
				m.Finish(first)
			}
			var all []*proxytest.Call
			var slow []*proxytest.Client
			for range clients {
				get, next := m.Get("/x").Same(), m.Get("/x").Same()
				cl := m.Do(get, next)
				all, slow = append(all, get, next), append(slow, cl)
				m.W.RunUntil(func() bool { return cl.Conn != nil }, time.Second)
				m.W.Faults.PauseReading(cl.Conn, true)
			}
			m.W.Run(time.Second)
			if held := m.Consumer.Proc.Held(); held < size || held > 3*size+clients*(256+64)<<10 {
				t.Errorf("%d bytes held by %d responses of %d bytes", held, clients, size)
			}
			slow[0].Leave() // one leaves
			for _, cl := range slow[1:] {
				m.W.Faults.PauseReading(cl.Conn, false)
			}
			m.OK(all[2:]...)
			m.Settled()
		})
	}
}

// TestUnreadSharedBody: a client that reads nothing of a long cached response for timeouts.write loses its connection.
func TestUnreadSharedBody(t *testing.T) {
	const size = 2 << 20
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "cache: {ttl: 1h}", Limits: "timeouts: {write: 4s}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, size) }
	first := m.Get("/x")
	m.Do(first)
	m.Finish(first)
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("the connection", func() bool { return p.Conn != nil })
	m.W.Faults.PauseReading(p.Conn, true)
	m.Clients.Do(func() { p.Conn.Write([]byte("GET /x HTTP/1.1\r\nHost: compute\r\n\r\n")) })
	m.W.Run(10 * time.Second)
	if n := m.Consumer.WriteTimeouts(); n != 1 {
		t.Errorf("%d timeouts are counted", n)
	}
	m.Settled()
}

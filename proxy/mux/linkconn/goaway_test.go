package linkconn_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestRepeatedGoAways checks that repeated GOAWAYs cost a dialler with many requests in flight
// nothing, except that each request which they exclude fails once.
func TestRepeatedGoAways(t *testing.T) {
	const open, above = 1000, 10_000
	p := &proxytest.Peer{Says: proxytest.LinkPreface(link.Acceptor)}
	m, consumer, accept := linkTo(t, p)
	for range open {
		l, s := accept()
		c, _ := m.Net.Connect(l, s, nil, nil)
		s.OnOpen(c)
		m.Clients = append(m.Clients, c)
		c.Deliver([]byte(proxytest.GetHead))
	}
	m.Net.Pump()
	near := p.Conn.(*proxytest.NullConn).Peer
	goAway := func(last uint64) []byte { return frame(10, last, []byte{byte(link.Draining)}) }
	failed := func(code string) (n int) {
		for _, c := range m.Clients {
			if bytes.Contains(c.Out, []byte("X-Remora-Error: "+code)) {
				n++
			}
		}
		return n
	}

	near.Deliver(goAway(above))
	for name, last := range map[string]func(i uint64) uint64{
		"repeated": func(uint64) uint64 { return above },
		"rising":   func(i uint64) uint64 { return above + i },
		"falling":  func(i uint64) uint64 { return above - i },
	} {
		const n = 5000
		var says [][]byte
		for i := range uint64(n + 1) {
			says = append(says, goAway(last(i)))
		}
		if allocs := testing.AllocsPerRun(n, func() { near.Deliver(says[0]); says = says[1:] }); allocs != 0 && !racetest.Enabled {
			t.Errorf("%s: %v allocations for a GOAWAY that excludes nothing", name, allocs)
		}
	}
	if n := failed(""); n != 0 {
		t.Fatalf("%d requests have failed that all GOAWAYs include", n)
	}
	for last := uint64(open - 1); last >= open/2; last-- {
		near.Deliver(goAway(last))
		near.Deliver(goAway(open))
		m.Net.Pump()
		if n := failed("upstream-goaway"); n != int(open-last) {
			t.Fatalf("%d requests have failed after a GOAWAY of %d, want %d", n, last, open-last)
		}
	}
	near.Deliver(goAway(0))
	m.Net.Pump()
	if n := failed("upstream-connect"); n != open/2 {
		t.Errorf("%d requests have failed with the last GOAWAY, want %d", n, open/2)
	}
	if !near.Closed || consumer.Pending() != 0 {
		t.Errorf("link closed: %t, %d pending", near.Closed, consumer.Pending())
	}
}

// TestResponsesToNothing checks that a dialler keeps nothing of long responses to requests that it has not
// sent.
func TestResponsesToNothing(t *testing.T) {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
	m, consumer, accept := linkTo(t, p)
	l, s := accept()
	c, _ := m.Net.Connect(l, s, nil, nil)
	s.OnOpen(c)
	c.Deliver([]byte(proxytest.GetHead))
	m.Net.Pump()
	before := consumer.Held()
	for id := range uint64(100) {
		w.Response(id+2, &protocol.Response{Status: 200, Body: make([]byte, 100<<10)}, 0, nil)
		p.Conn.(*proxytest.NullConn).Peer.Deliver(w.Append(nil, 20<<10))
	}
	if n := consumer.Held() - before; n > 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// linkTo returns a sidecar whose service has p for its only endpoint, and what accepts its clients.
func linkTo(t *testing.T, p *proxytest.Peer) (*proxytest.AllocMesh, *proxy.Process, func() (*proxytest.NullLoop, loop.Receiver)) {
	m := &proxytest.AllocMesh{T: t, Net: proxytest.NewNullNet()}
	consumer, accept := m.Sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: link, retry: {on: []}, max_pending: 10000}}`)
	far := m.Net.Loop()
	m.Net.Accept["10.0.0.1:15006"] = func() (*proxytest.NullLoop, loop.Receiver) { return far, p }
	consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{},
		[]registry.Endpoint{{Addr: "10.0.0.1:15006", Weight: 1}}))
	m.Net.Pump()
	return m, consumer, accept
}

package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/registry"
)

// TestManyGoAways: a peer that says GOAWAY again and again costs a dialler with many
// requests out nothing but what it takes from the link, each request once.
func TestManyGoAways(t *testing.T) {
	const open, above = 1000, 10_000
	m := &allocMesh{t: t, net: newNullNet()}
	consumer, accept := m.sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: link, retry: {on: []}, max_pending: 10000}}`)
	p := &peer{says: linkPreface(link.Acceptor)}
	far := m.net.loop()
	m.net.accept["10.0.0.1:15006"] = func() (*nullLoop, proxy.Stream) { return far, p }
	consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{},
		[]registry.Endpoint{{Addr: "10.0.0.1:15006", Weight: 1}}))
	m.net.pump()
	for range open {
		l, s := accept()
		c, _ := m.net.connect(l, s, nil, nil)
		s.OnOpen(c)
		m.clients = append(m.clients, c)
		c.deliver([]byte(getHead))
	}
	m.net.pump()
	near := p.conn.(*nullConn).peer
	goAway := func(last uint64) []byte { return frame(10, last, []byte{byte(link.Draining)}) }
	told := func(code string) (n int) {
		for _, c := range m.clients {
			if bytes.Contains(c.out, []byte("X-Remora-Error: "+code)) {
				n++
			}
		}
		return n
	}

	near.deliver(goAway(above))
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
		if allocs := testing.AllocsPerRun(n, func() { near.deliver(says[0]); says = says[1:] }); allocs != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations for a GOAWAY that takes nothing", name, allocs)
		}
	}
	if n := told(""); n != 0 {
		t.Fatalf("%d requests have failed that all GOAWAYs cover", n)
	}
	for last := uint64(open - 1); last >= open/2; last-- {
		near.deliver(goAway(last))
		near.deliver(goAway(open))
		m.net.pump()
		if n := told("upstream-goaway"); n != int(open-last) {
			t.Fatalf("%d requests have failed after a GOAWAY of %d, want %d", n, last, open-last)
		}
	}
	near.deliver(goAway(0))
	m.net.pump()
	if n := told("upstream-connect"); n != open/2 {
		t.Errorf("%d requests have failed with the last GOAWAY, want %d", n, open/2)
	}
	if !near.closed || consumer.Pending() != 0 {
		t.Errorf("link closed: %t, %d pending", near.closed, consumer.Pending())
	}
}

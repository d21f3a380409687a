package link_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestRefusalAllocations: requests that a link refuses allocate nothing in the steady state.
func TestRefusalAllocations(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1})
	_, accept := m.Sidecar(`
listeners: [{name: ingress, address: "127.0.0.1:1", protocol: link, service: local}]
services: {local: {discover: static, endpoints: ["192.0.2.9:1"], protocol: tcp}}`)
	l, s := accept()
	c, _ := m.Net.Connect(l, s, nil, nil)
	s.OnOpen(c)
	c.Deliver(proxytest.LinkFrames(func(*link.Writer) {}))
	w, id, in := link.NewWriter(), uint64(0), []byte(nil)
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	w.Append(nil, 1<<20)
	m.CheckAllocs(0, func() {
		id++
		w.Request(id, proxytest.LinkRequest, time.Minute, nil)
		in = w.Append(in[:0], 1<<20)
		c.Out = c.Out[:0]
		c.Deliver(in)
		m.Net.Pump()
		if len(c.Out) == 0 {
			t.Fatal("no response")
		}
	})
}

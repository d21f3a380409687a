package http2_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestIdleSleeps: the loop of a connection whose requests have their responses sleeps.
func TestIdleSleeps(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	c := dial(m, 0)
	c.await(c.send(request("GET", "/", 0)))
	m.W.Run(time.Second)
	turns := 0
	m.W.OnTurn(func(l *sim.Loop, _, _ int) {
		if l == m.Consumer.Loop {
			turns++
		}
	})
	for range 5 {
		c.await(c.send(request("GET", "/", 0)))
		m.W.Run(time.Millisecond) // for what the client says of the response
		turns = 0
		if m.W.Run(100 * time.Millisecond); turns != 0 {
			t.Errorf("%d turns of the loop without a request", turns)
		}
	}
	m.Settled()
}

// TestClosedConnectionIsForgotten: a loop keeps nothing of a connection that has closed, although it keeps the memory of the calls for
// the next ones.
func TestClosedConnectionIsForgotten(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 2, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
	m.Greet()
	get := proxytest.Frames{First: proxytest.Frame(proxytest.FrameHeaders, proxytest.FlagEnd|proxytest.FlagEndHeaders, "\x82\x86\x84\x41\x07compute")}
	for _, c := range m.Clients {
		c.Deliver(get.Append(nil, 1))
	}
	m.Net.Pump()
	for _, c := range m.Clients {
		if len(c.Out) < len(proxytest.ShapeBody) {
			t.Fatalf("received %q", c.Out)
		}
	}
	first, last := weak.Make(m.Clients[0]), weak.Make(m.Clients[1])
	m.Clients[0].Lose()
	m.Clients[0], m.Clients = nil, m.Clients[1:]
	m.Net.ForgetClosed()
	runtime.GC()
	if first.Value() != nil {
		t.Error("the connection that has closed is still referenced")
	}
	if last.Value() == nil {
		t.Error("the open connection is not referenced: the test proves nothing")
	}
	runtime.KeepAlive(m)
}

package proxy_test

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// sink is a connection that needs no memory: all sessions may share one.
type sink struct{ loop.Conn }

func (sink) Write([]byte)                {}
func (sink) Buffered() int               { return 0 }
func (sink) RemoteAddr() string          { return "192.0.2.1:54321" }
func (sink) OriginalDst() netip.AddrPort { return netip.AddrPort{} }
func (sink) Protocol() string            { return "" }

// TestMemoryOfIdleSessions bounds what an idle HTTP connection costs beside the driver's part:
// its session, its timers, and its places in lists.
func TestMemoryOfIdleSessions(t *testing.T) {
	const count = 10_000
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"})
	worker, listener := m.Consumer.Workers()[0], m.Consumer.Generation().Listener("egress")
	sessions := make([]loop.Receiver, count)
	open := func(s *loop.Receiver) {
		*s = listener.Accept(worker)
		(*s).OnOpen(sink{})
		(*s).OnData([]byte("GET / HTTP/1.1\r\nHost: compute\r\n\r\n"))
		m.Net.Pump()
	}
	open(new(loop.Receiver))
	before := heap()
	for i := range sessions {
		open(&sessions[i])
	}
	if each := (heap() - before) / count; each > 260 {
		t.Errorf("%d bytes for each", each)
	}
	runtime.KeepAlive(sessions)
}

// heap returns the bytes of objects that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

package linkconn_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestLinkCounts: all bytes of a link are counted, its writes, and the messages in them.
func TestLinkCounts(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	w, p := m.DialLink()
	sent := len(p.Says)
	for id := range uint64(3) {
		w.Request(id+1, proxytest.LinkRequest, time.Minute, nil)
		b := w.Append(nil, 1<<20)
		sent += len(b)
		m.Clients.Do(func() { p.Conn.Write(b) })
		m.W.Run(100 * time.Millisecond)
	}
	s := m.Nodes[1].Report().Stats
	if s.LinkBytesIn != uint64(sent) || s.LinkBytesOut != uint64(len(p.Heard)) || len(p.Heard) == 0 {
		t.Errorf("%d bytes in, %d out; the peer has sent %d and got %d", s.LinkBytesIn, s.LinkBytesOut, sent, len(p.Heard))
	}
	if s.LinkFlushes < 3 || s.LinkFlushes > 5 || s.LinkBatches.Sum != 3 {
		t.Errorf("%d writes, %+v", s.LinkFlushes, s.LinkBatches)
	}
	if n := m.Nodes[1].Proc.Links(); n != 1 {
		t.Errorf("%d links are counted", n)
	}
	m.Clients.Do(func() { p.Conn.Close() })
	m.W.Run(time.Second)
	m.Settled()
	if n := m.Nodes[1].Proc.Links(); n != 0 {
		t.Errorf("%d links are counted after the end of the only one", n)
	}
}

// TestAllocations: in steady state requests over a link allocate nothing, whether they are alone or not.
func TestAllocations(t *testing.T) {
	for _, clients := range []int{1, 4} {
		m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 2, Clients: clients, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
		want, request := []byte(proxytest.ShapeBody), []byte(proxytest.GetHead)
		m.CheckAllocs(0, func() { m.Call(want, request) })
	}
}

// TestHeadsOverLinks: a message may have as many headers and bytes as limits allow, and those that the other sidecar adds.
func TestHeadsOverLinks(t *testing.T) {
	const headers, size = 128 + 6, 64<<10 + 384
	const framing = 4 << 10 // the codec allows so much more for lengths
	list := func(n int, value string) (hs []protocol.Header) {
		for range n {
			hs = append(hs, protocol.Header{Name: []byte("a"), Value: []byte(value)})
		}
		return hs
	}
	for name, c := range map[string]struct {
		headers []protocol.Header
		passes  bool
	}{
		"headers, at the limit": {list(headers, "b"), true},
		"headers, one more":     {list(headers+1, "b"), false},
		"bytes, at the limit":   {[]protocol.Header{{Name: []byte("a"), Value: bytes.Repeat([]byte("b"), size)}}, true},
		"bytes, above":          {[]protocol.Header{{Name: []byte("a"), Value: bytes.Repeat([]byte("b"), size+framing)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			w, p := m.DialLink()
			req := *proxytest.LinkRequest
			req.Headers = c.headers
			w.Request(1, &req, time.Minute, nil)
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
			m.W.Run(100 * time.Millisecond)
			if served := m.Apps[0].Served == 1; served != c.passes {
				t.Errorf("the request was served: %t", served)
			}
			m.Clients.Do(func() { p.Conn.Close() })
			m.Settled()
		})
	}
}

// TestResponseHeadsOverLinks: a dialler takes as many headers of a response.
func TestResponseHeadsOverLinks(t *testing.T) {
	const headers = 128 + 6
	for _, n := range []int{headers, headers + 1} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "retry: {on: []}"})
		call := m.Get("/")
		res := &protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: []byte(call.Nonce)}}}
		for len(res.Headers) < n {
			res.Headers = append(res.Headers, protocol.Header{Name: []byte("a"), Value: []byte("b")})
		}
		w := link.NewWriter()
		w.Preface(link.Acceptor, link.Settings{})
		w.Open(1, link.Settings{})
		p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
		w.Response(1, res, protocol.CodecHTTP, nil)
		p.Reply = firstThen(w.Append(nil, 1<<20), func([]byte) []byte { return nil })
		m.ReplaceProvider(p)
		m.Do(call)
		m.Finish(call)
		if passed := call.Status == 200; passed != (n == headers) {
			t.Errorf("%d headers: status %d %s", n, call.Status, call.Code)
		}
	}
}

// TestControlFlood: a peer whose requests are refused at once loses its link if it does not read that, long before
// timeouts.write.
func TestControlFlood(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {write: 1h}"})
	m.W.Options.SendBuffer, m.W.Options.ReceiveBuffer = 16<<10, 16<<10
	w, p := m.DialLink()
	m.W.Faults.PauseReading(p.Conn, true)
	refused := &protocol.Request{Codec: 99, Service: []byte("local")}
	sent := 0
	for ; !p.Ended && m.Nodes[1].Connections() > 0 && sent < 200_000; sent += 4000 {
		for i := range 4000 {
			w.Request(1<<62+uint64(sent+i), refused, time.Minute, nil) // the refusal of a high id is long
		}
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		m.W.Run(50 * time.Millisecond)
	}
	const least = 12 // bytes of a refusal
	if sent*least < 1<<20 || sent >= 200_000 {
		t.Errorf("the link is closed after %d requests", sent)
	}
	m.W.Faults.Reset(p.Conn)
	m.Settled()
	if n := m.Nodes[1].Proc.Links(); n != 0 {
		t.Errorf("%d links are counted after the end of the only one", n)
	}
}

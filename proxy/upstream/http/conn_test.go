package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// peerMesh returns a mesh whose application is a Peer for each connection, made by newPeer.
func peerMesh(t *testing.T, service string, newPeer func(n int) *proxytest.Peer) (m *proxytest.Mesh, peers *[]*proxytest.Peer) {
	t.Helper()
	m = proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: service})
	m.Apps[0].Stop()
	peers = new([]*proxytest.Peer)
	m.Apps[0].Stop = m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
		*peers = append(*peers, newPeer(len(*peers)))
		return (*peers)[len(*peers)-1]
	})
	return m, peers
}

// responds responds to each GET.
func responds(heard []byte) []byte {
	if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
		return nil
	}
	return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

// get sends a GET whose response has no nonce, and waits for it.
func get(m *proxytest.Mesh) *proxytest.Call {
	c := m.Get("/")
	c.Nonce = ""
	return m.Complete(c)
}

// connections is how many the sidecar has to the only application.
func connections(m *proxytest.Mesh) int {
	return m.Consumer.Report().Services[0].Endpoints[0].Connections
}

// TestUntrusted: the connection to an endpoint that is not trusted any more carries its request to the end, and no other.
func TestUntrusted(t *testing.T) {
	for _, busy := range []bool{false, true} {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s"})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		first := m.Post(10)
		if m.Do(first); busy {
			m.W.Run(500 * time.Millisecond)
		} else {
			m.Finish(first)
		}
		d.Distrust(m.Consumer.Loop, 0)
		m.W.Run(10 * time.Millisecond)
		if n := connections(m); (n == 1) != busy {
			t.Errorf("busy %t: %d connections", busy, n)
		}
		m.Finish(first)
		m.OK(first)
		m.W.Run(10 * time.Millisecond)
		if n := connections(m); n != 0 {
			t.Errorf("busy %t: %d connections after the response", busy, n)
		}
		second := m.Complete(m.Post(10))
		if m.OK(second); d.Dials != 2 {
			t.Errorf("busy %t: %d connections for two requests", busy, d.Dials)
		}
		m.Settled()
	}
}

// TestIdleTimeout: connections close when they have been idle for idle_timeout, a few at a time, and no later than an eighth of it.
func TestIdleTimeout(t *testing.T) {
	const timeout = 4 * time.Second
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "idle_timeout: 4s"})
	m.OK(m.Complete(m.Get("/")))
	m.W.Run(timeout - 10*time.Millisecond)
	if n := connections(m); n != 1 {
		t.Errorf("%d connections just before idle_timeout, want 1", n)
	}
	m.W.Run(20 * time.Millisecond)
	if n := connections(m); n != 0 {
		t.Errorf("%d connections after idle_timeout", n)
	}

	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	calls := m.Burst(20, 10)
	m.Finish(calls...)
	idle := m.W.Now()
	m.W.Run(time.Second)
	m.OK(m.Complete(m.Get("/")))
	last := m.W.Now()
	closed := []int{20}
	m.RunUntil("the ends", func() bool {
		if n := connections(m); n != closed[len(closed)-1] {
			closed = append(closed, n)
		}
		return closed[len(closed)-1] == 0
	})
	for i, n := range closed[1:] {
		if closed[i]-n > 8 {
			t.Errorf("connections at a time: %v, want at most eight to close", closed)
		}
	}
	if took := m.W.Now() - last; took < timeout-10*time.Millisecond || took > timeout+timeout/8 || m.W.Now()-idle < timeout+time.Second {
		t.Errorf("the last one closed after %v", took)
	}
}

// TestIdleTimeoutOfMany: once many connections have been idle for idle_timeout, all close soon, a few at a time.
func TestIdleTimeoutOfMany(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "idle_timeout: 4s"})
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	m.Finish(m.Burst(40, 10)...)
	m.RunUntil("the first ends", func() bool { return connections(m) < 35 }) // the very first may close alone
	began := m.W.Now()
	m.RunUntil("the last ends", func() bool { return connections(m) == 0 })
	if took := m.W.Now() - began; took > 100*time.Millisecond {
		t.Errorf("the others closed over %v", took)
	}
}

// TestInputWithoutRequest: an endpoint that sends what nobody has asked for loses its connection, and no request gets it.
func TestInputWithoutRequest(t *testing.T) {
	m, peers := peerMesh(t, "", func(int) *proxytest.Peer { return &proxytest.Peer{Reply: responds} })
	m.OK(get(m))
	first := (*peers)[0]
	m.Apps[0].Loop.Do(func() { first.Conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")) })
	m.RunUntil("the close", func() bool { return first.Ended })
	if c := get(m); len(c.Body) > 0 || len(*peers) != 2 {
		t.Errorf("the next response has %q, over %d connections", c.Body, len(*peers))
	}
	m.Settled()
}

// TestNewConnectionCloses: a request is not sent once more if its connection was not used before.
func TestNewConnectionCloses(t *testing.T) {
	m, peers := peerMesh(t, "idempotent: methods, retry: {on: []}", func(int) *proxytest.Peer {
		return &proxytest.Peer{Reply: func([]byte) []byte { return []byte{} }, ClosesAfterReply: true}
	})
	if c := get(m); c.Code != "upstream-reset" || len(*peers) != 1 {
		t.Errorf("status %d %s after %d connections", c.Status, c.Code, len(*peers))
	}
	m.Settled()
}

// TestLargeRequests: the application gets the body and the trailers of a request, of any size.
func TestLargeRequests(t *testing.T) {
	for _, size := range []int{1, http1.WriteTogether, http1.WriteTogether + 1} {
		for _, trailers := range []string{"", "a: b\r\n"} {
			body := strings.Repeat("x", size) + "end"
			m, peers := peerMesh(t, "", func(int) *proxytest.Peer {
				return &proxytest.Peer{Reply: func(heard []byte) []byte {
					ends := "\r\n\r\n" + body
					if trailers != "" {
						ends = fmt.Sprintf("\r\n\r\n%x\r\n%s\r\n0\r\n%s\r\n", len(body), body, trailers)
					}
					if !bytes.HasSuffix(heard, []byte(ends)) {
						return nil
					}
					return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}}
			})
			c := m.Raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n%s\r\n", len(body), body, trailers))
			c.Nonce = ""
			m.OK(m.Complete(c))
			if heard := (*peers)[0].Heard; bytes.Count(heard, []byte(body)) != 1 || bytes.Contains(heard, []byte("chunked")) != (trailers != "") {
				t.Errorf("%d bytes, trailers %q: the application got %.200q", size, trailers, heard)
			}
			m.Settled()
		}
	}
}

// TestDialAfterFailure: a dial that has failed does not keep others from being tried.
func TestDialAfterFailure(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 30s, retry: {on: []}"})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return 10 * time.Second }
	busy := m.Post(10)
	m.Do(busy)
	m.W.Run(100 * time.Millisecond)
	a.Delay = func() time.Duration { return time.Millisecond }
	a.Stop()
	if c := m.Complete(m.Post(10)); c.Code != "upstream-connect" {
		t.Errorf("status %d %s", c.Status, c.Code)
	}
	a.Listen()
	c := m.Complete(m.Post(10))
	if m.OK(c); c.Took > 100*time.Millisecond || d.Dials != 3 {
		t.Errorf("response after %v, %d dials", c.Took, d.Dials)
	}
	m.Finish(busy)
	m.Settled()
}

// TestAttemptHeader: each attempt has its own number, and no other.
func TestAttemptHeader(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "idempotent: true, retry: {attempts: 2, on: [5xx]}, hedge: {budget: 1}"})
	var got []string
	m.WarmUp(50) // earns tokens
	m.Apps[0].Status = 500
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		var numbers []string
		for _, h := range req.Headers {
			if protocol.EqualFold(h.Name, protocol.HeaderAttempt) {
				numbers = append(numbers, string(h.Value))
			}
		}
		got = append(got, fmt.Sprint(numbers))
	}
	m.Complete(m.Post(10))
	if s := fmt.Sprint(got); s != "[[] [1] [2]]" {
		t.Errorf("attempts had the numbers %s", s)
	}
}

// TestLongMessages: without streams a response may have limits.message, and no byte more, whatever its framing.
func TestLongMessages(t *testing.T) {
	for _, framing := range []string{"Content-Length: %d\r\n\r\n%s", "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"} {
		for size, code := range map[int]string{1024: "", 1025: "response-too-large"} {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1KiB}"})
			m.Apps[0].RespondWith(fmt.Sprintf("HTTP/1.1 200 OK\r\n"+framing, size, strings.Repeat("y", size)))
			if c := get(m); c.Code != code || code == "" && len(c.Body) != size {
				t.Errorf("%.10s, %d bytes: status %d %s, %d bytes", framing, size, c.Status, c.Code, len(c.Body))
			}
			m.Settled()
		}
	}
}

// TestBadResponseCounts: a response that waits for a better one counts in limits.buffered.
func TestBadResponseCounts(t *testing.T) {
	const size = 100_000
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Service: "idempotent: true, timeout: 10s, retry: {on: [5xx]}, hedge: {mode: on, delay: 20ms, budget: 1}"})
	for i, a := range m.Apps {
		a.Body = func(*protocol.Request) []byte { return make([]byte, size) }
		a.OnRequest = func(*protocol.Request) {
			takes := 50 * time.Millisecond
			if m.Apps[1-i].Served > 0 || m.Apps[1-i].Status == 500 {
				takes = time.Second
			} else {
				a.Status = 500
			}
			a.Delay = func() time.Duration { return takes }
		}
	}
	c := m.Get("/")
	m.Do(c)
	m.RunUntil("the bad response", func() bool { return m.Apps[0].Served+m.Apps[1].Served == 1 })
	m.W.Run(100 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); c.Done || n < size {
		t.Errorf("%d bytes are held, status %d", n, c.Status)
	}
	m.Finish(c)
	m.OK(c)
	m.Settled()
}

// TestAllocations: a request and its response allocate nothing.
func TestAllocations(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 4, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
	want := []byte(proxytest.ShapeBody)
	for _, request := range [][]byte{[]byte(proxytest.GetHead), []byte(post(10_000))} {
		m.CheckAllocs(0, func() { m.Call(want, request) })
	}
}

// TestResponseTrailers: the client gets the trailers of a response.
func TestResponseTrailers(t *testing.T) {
	m, _ := peerMesh(t, "", func(int) *proxytest.Peer {
		return &proxytest.Peer{Reply: func([]byte) []byte {
			return []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")
		}}
	})
	client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\nTE: trailers\r\n\r\n")
	m.RunUntil("the response", func() bool { return bytes.Contains(client.Heard, []byte("ok")) })
	m.W.Run(time.Millisecond)
	if !bytes.Contains(bytes.ToLower(client.Heard), []byte("\r\nx-sum: 7\r\n")) {
		t.Errorf("the client got %q", client.Heard)
	}
	m.Settled()
}

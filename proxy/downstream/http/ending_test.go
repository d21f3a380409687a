package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestUntrustedClient: a client whose certificate is no longer accepted gets the response to the request in flight, or to the one
// that is being received. Later requests get none, and an idle connection closes at once.
func TestUntrustedClient(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: compute\r\n\r\n", "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 5\r\n\r\nhello"
	for name, c := range map[string]struct {
		before, after string
		responses     int
		took          time.Duration
	}{
		"idle":                     {"", get, 0, 0},
		"in flight":                {get, get, 1, time.Second},
		"in flight and one behind": {get + get, "", 1, time.Second},
		"part of a head":           {get[:10], get[10:] + get, 1, time.Second},
		"part of a body":           {post[:len(post)-2], post[len(post)-2:] + get, 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			m.Apps[0].Delay = func() time.Duration { return time.Second }
			p := m.DialAndSend(proxytest.Egress, c.before)
			m.W.Run(100 * time.Millisecond)
			began := m.W.Now()
			m.W.Faults.Distrust(p.Conn)
			m.Clients.Do(func() { p.Conn.Write([]byte(c.after)) })
			heard := m.RunUntilClosed(p)
			if n := strings.Count(heard, "HTTP/1.1 200 "); n != c.responses || strings.Count(heard, "Connection: close\r\n") != n {
				t.Errorf("%d responses in %q, want %d", n, heard, c.responses)
			}
			if took := (m.W.Now() - began).Round(time.Second); took != c.took {
				t.Errorf("the connection closed after %v, want %v", took, c.took)
			}
			m.Settled()
		})
	}
}

// TestDrain: a connection that has had a request closes at once when the process drains, behind the request in flight. One
// that has had none has a second for it.
func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		responses     int
		took          time.Duration
	}{
		"used":                     {known, "", 1, 0},
		"in flight":                {known + known, "", 2, 0},
		"new":                      {"", "", 0, time.Second},
		"new, with a late request": {"", known, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			served := 0
			m.Apps[0].Delay = func() time.Duration {
				if served++; served == 2 {
					return 200 * time.Millisecond
				}
				return time.Millisecond
			}
			p := m.DialAndSend(proxytest.Egress, c.before)
			m.W.Run(100 * time.Millisecond)
			began := m.W.Now()
			m.Consumer.Proc.Drain()
			m.W.Run(10 * time.Millisecond)
			if c.after != "" {
				m.Clients.Do(func() { p.Conn.Write([]byte(c.after)) })
			}
			heard := m.RunUntilClosed(p)
			if n := strings.Count(heard, "HTTP/1.1 200 "); n != c.responses {
				t.Errorf("%d responses, want %d", n, c.responses)
			}
			if took := m.W.Now() - began; took < c.took || took > c.took+500*time.Millisecond {
				t.Errorf("closed after %v, want %v", took, c.took)
			}
			m.Settled()
		})
	}
}

// TestAcceptedWhileDraining: a connection that was accepted just before the listener has closed gets one response. Without a request, the
// connection closes soon if the process drains.
func TestAcceptedWhileDraining(t *testing.T) {
	for name, end := range map[string]func(m *proxytest.Mesh){
		"drained": func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() },
		"retired": func(m *proxytest.Mesh) { m.Consumer.Proc.Retire() },
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		end(m)
		m.W.Run(10 * time.Millisecond)
		silent := m.DialAndSend(proxytest.Egress, "")
		m.W.Run(2 * time.Second)
		if silent.Ended != (name == "drained") {
			t.Errorf("%s: a connection without a request is closed %t", name, silent.Ended)
		}
		heard := m.RunUntilClosed(m.DialAndSend(proxytest.Egress, known+known))
		if n := strings.Count(heard, "HTTP/1.1 200 "); n != 1 || !strings.Contains(heard, "Connection: close\r\n") {
			t.Errorf("%s: %d responses in %q", name, n, heard)
		}
		m.Settled()
	}
}

// TestListenerRemovedWithService: the response in flight is the last one of a connection whose listener is removed with its service.
func TestListenerRemovedWithService(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Listener: "service: compute"})
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	p := m.DialAndSend(proxytest.Egress, known)
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Reload(`
listeners: [{name: other, address: "127.0.0.1:15002", protocol: http}]
routes: [{service: next}]
services: {next: {discover: static, endpoints: ["10.0.9.9:1"], protocol: link}}`)
	if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, "HTTP/1.1 200 ") || !strings.Contains(heard, "Connection: close\r\n") {
		t.Errorf("received %q", heard)
	}
	m.Settled()
}

// TestFinish: a connection closes without waiting for its client if the client wants that, and has sent nothing more.
func TestFinish(t *testing.T) {
	const closes = "GET / HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n"
	for said, finished := range map[string]bool{closes: true, closes + "\r\n": true, closes + "more": false, closes[:20] + "\r\n\r\n": false} {
		m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
		c := m.Clients[0]
		c.Deliver([]byte(said))
		m.Net.Pump()
		if !c.Closed || c.Finished != finished {
			t.Errorf("%q: closed %t, finished %t", said, c.Closed, c.Finished)
		}
	}
}

// TestInterim: interim responses come before the response, but for a client of HTTP/1.0.
func TestInterim(t *testing.T) {
	for version, want := range map[string]string{"HTTP/1.1": "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n", "HTTP/1.0": "HTTP/1.1 200 OK\r\n"} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].RespondWith("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		p := m.DialAndSend(proxytest.Egress, strings.Replace(known, "HTTP/1.1", version, 1))
		m.RunUntil("a response", func() bool { return bytes.HasSuffix(p.Heard, []byte("ok")) })
		if !strings.HasPrefix(string(p.Heard), want) {
			t.Errorf("%s: received %q", version, p.Heard)
		}
		m.W.Faults.Reset(p.Conn)
	}
}

// TestOverMemoryShare: while memory is short, a connection over its share may send no more of a request. A small request of
// another connection is served.
func TestOverMemoryShare(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, says := range map[string]string{
		"a head":    "GET / HTTP/1.1\r\nHost: compute\r\nx: " + long,
		"a body":    "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 900000\r\n\r\n" + long,
		"chunks":    "POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + long,
		"a handoff": known + "CONNECT compute:80 HTTP/1.1\r\nHost: compute:80\r\n\r\n" + long,
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 40 // whose share is 100 KiB
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{
				Apps: 1, Match: "match: {method: [CONNECT, GET, POST]}", Limits: "limits: {message: 1MiB, buffered: 1MiB, header: 300KiB}",
			})
			delay := time.Minute // of the first request
			m.Apps[0].Delay = func() time.Duration { return delay }
			var others []*proxytest.Client
			for range clients - 1 {
				others = append(others, m.Dial(proxytest.Egress))
			}
			p := m.DialAndSend(proxytest.Egress, says)
			m.W.Run(100 * time.Millisecond)
			if len(p.Heard) > 0 || m.Consumer.Proc.Held() < int64(len(long)) {
				t.Fatalf("%d bytes are held, received %q", m.Consumer.Proc.Held(), p.Heard)
			}
			delay = time.Millisecond
			m.Consumer.Proc.Charge(1 << 20)
			small := m.Post(10)
			m.Clients.Do(func() { others[0].Calls = append(others[0].Calls, small); others[0].Send() })
			m.OK(small)
			m.Clients.Do(func() { p.Conn.Write([]byte("more")) })
			heard := m.RunUntilClosed(p) // behind the response to the first request
			proxytest.CheckRefusal(t, []byte(heard[strings.LastIndex(heard, "HTTP/1."):]), 503, "overloaded")
			m.Consumer.Proc.Charge(-1 << 20)
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestShedConnection: a connection whose client does not read closes when it holds the most of memory that is short. Its request
// in flight ends, and a client that reads loses nothing.
func TestShedConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Service: "timeout: 5m"})
	m.Apps[0].Body = func(req *protocol.Request) []byte {
		if string(req.Path) == "/" {
			return make([]byte, 1<<20)
		}
		return nil
	}
	var deaf []*proxytest.Client
	for range 8 {
		cl := m.Do(m.Get("/"))
		deaf = append(deaf, cl)
		m.RunUntil("a connection", func() bool { return cl.Conn != nil })
		m.W.Faults.PauseReading(cl.Conn, true)
		read := m.Get("/small")
		m.Do(read)
		m.OK(read)
	}
	m.W.Run(100 * time.Millisecond)
	if n, held := m.Consumer.ShedConnections(), m.Consumer.Proc.Held(); n == 0 || n > 7 || held > proxytest.HardMark {
		t.Errorf("%d of 8 connections were closed, %d bytes are held", n, held)
	}
	for i, cl := range deaf {
		m.W.Faults.PauseReading(cl.Conn, false)
		m.RunUntil(fmt.Sprint("the end of call ", i), func() bool { return len(cl.Calls) == 0 })
	}
	m.RunUntil("all memory", func() bool { return m.Consumer.Proc.Held() == 0 && m.Consumer.Proc.Pending() == 0 })
}

// TestShedRequest: when memory is full, the connection whose request is the largest closes, and others lose nothing.
func TestShedRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Service: "timeout: 5m"})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	large, small := m.Post(800<<10), m.Post(100<<10)
	holder := m.Do(large)
	m.Do(small)
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Proc.Charge(proxytest.HardMark - 1000<<10)
	next := m.Post(100 << 10) // with which memory is full
	m.Do(next)
	m.W.Run(time.Second)
	if n := m.Consumer.ShedConnections(); n != 1 || !holder.Ended {
		t.Errorf("%d connections were closed, that with the largest request: %t", n, holder.Ended)
	}
	m.OK(small, next)
	m.Consumer.Proc.Charge(-(proxytest.HardMark - 1000<<10))
	m.Settled()
}

// TestUnreadRequest: a request that has arrived while the loop was late gets its response, although timeouts.idle has passed or
// the process drains.
func TestUnreadRequest(t *testing.T) {
	for name, drains := range map[string]bool{"idle": false, "drain": true} {
		t.Run(name, func(t *testing.T) {
			said := 0 // responses after which the client knew that the connection closes
			for seed := range uint64(10) {
				m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, OneHop: true, Limits: "timeouts: {idle: 5s}"})
				p := m.DialAndSend(proxytest.Egress, known)
				responses := func() int { return bytes.Count(p.Heard, []byte("HTTP/1.1 200 ")) }
				m.RunUntil("a response", func() bool { return responses() == 1 })
				m.W.Run(5*time.Second - 2*time.Millisecond)
				m.W.Faults.Pause(m.Consumer.Loop, 10*time.Millisecond)
				m.Clients.Do(func() { p.Conn.Write([]byte(known)) })
				if drains {
					m.Consumer.Proc.Drain()
				}
				if heard := m.RunUntilClosed(p); responses() != 2 {
					t.Errorf("seed %d: received %q", seed, heard)
				} else if strings.Contains(heard, "Connection: close\r\n") {
					said++
				}
				m.Settled()
			}
			if said == 0 || drains && said < 10 {
				t.Errorf("%d of 10 last responses say that the connection closes", said)
			}
		})
	}
}

// TestShedIdle: while connections are short, one that has waited for a request for a second may close. One with a request in
// flight, or with a part of one, stays.
func TestShedIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {header: 1m}"})
	first := true
	m.Apps[0].Delay = func() time.Duration {
		defer func() { first = false }()
		return map[bool]time.Duration{true: 10 * time.Second, false: time.Millisecond}[first]
	}
	busy := m.DialAndSend(proxytest.Egress, known)
	m.W.Run(100 * time.Millisecond)
	part, used, unused := m.DialAndSend(proxytest.Egress, known[:10]), m.DialAndSend(proxytest.Egress, known), m.DialAndSend(proxytest.Egress, "")
	m.W.Run(2 * time.Second)
	fresh := m.DialAndSend(proxytest.Egress, known)
	m.W.Run(100 * time.Millisecond)
	for range 10 {
		m.Consumer.Proc.ShedIdle()
	}
	m.W.Run(100 * time.Millisecond)
	for _, c := range []struct {
		name  string
		p     *proxytest.Peer
		ended bool
	}{{"busy", busy, false}, {"with part of a head", part, false}, {"used", used, true}, {"unused", unused, true}, {"fresh", fresh, false}} {
		if c.p.Ended != c.ended {
			t.Errorf("%s: closed %t", c.name, c.p.Ended)
		}
	}
	m.RunUntil("the response", func() bool { return bytes.Contains(busy.Heard, []byte("HTTP/1.1 200 ")) })
	for _, p := range []*proxytest.Peer{busy, part, fresh} {
		m.W.Faults.Reset(p.Conn)
	}
	m.Settled()
}

// TestShedPipelining: the request in flight of a connection that holds too much ends at once with the connection, although
// the application still works on it.
func TestShedPipelining(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Service: "timeout: 2h"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 620<<10) } // more than the kernels take
	requests := 0
	m.Apps[0].Delay = func() time.Duration {
		if requests++; requests == 2 {
			return time.Hour
		}
		return time.Millisecond
	}
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("a connection", func() bool { return p.Conn != nil })
	m.W.Faults.PauseReading(p.Conn, true)
	m.Clients.Do(func() { p.Conn.Write([]byte(known + known)) })
	m.RunUntil("the second request", func() bool { return requests == 2 })
	m.Consumer.Proc.Charge(proxytest.HardMark)
	other := m.Post(10 << 10)
	m.Do(other)
	m.RunUntil("the end of the connection", func() bool { return m.Consumer.ShedConnections() > 0 })
	m.Consumer.Proc.Charge(-proxytest.HardMark)
	m.Finish(other)
	if n := m.Consumer.Proc.Pending(); n != 0 {
		t.Errorf("%d requests are in flight", n)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.Settled()
}

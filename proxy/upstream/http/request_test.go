package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestUnsendable: a request that HTTP/1.1 can't carry is refused. The endpoint sees nothing of it, and the connection carries others.
func TestUnsendable(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	connections := 0
	a := m.Apps[0]
	a.Stop()
	m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		connections++
		return &proxytest.AppConn{A: a}
	})
	m.OK(m.Complete(m.Post(10)))
	w, p := m.DialLink()
	for i, c := range []struct {
		change func(req *protocol.Request)
		code   string
	}{
		{func(req *protocol.Request) { req.Method = []byte("CONNECT") }, "bad-request"},
		{func(req *protocol.Request) { req.Codec = dubbo.CodecFastjson }, "not-convertible"},
	} {
		req := *proxytest.LinkRequest
		c.change(&req)
		w.Request(uint64(i+1), &req, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		m.W.Run(10 * time.Millisecond)
		if n := m.Nodes[1].Report().Stats.Errors.Of(c.code); n != 1 {
			t.Errorf("%s: %d requests were refused for that", c.code, n)
		}
		m.Settled()
	}
	if m.OK(m.Complete(m.Post(10))); a.Served != 2 || connections != 1 {
		t.Errorf("%d requests were served, on %d connections", a.Served, connections)
	}
}

// TestInterim: the client gets the interim responses of the application ahead of the final one, however they arrive.
func TestInterim(t *testing.T) {
	const hints, processing = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\n"
	body := strings.Repeat("x", 20<<10) // a read that is split behind the first head
	for _, c := range []struct {
		name  string
		parts []string
	}{
		{"none", []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}},
		{"alone", []string{hints, processing, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}},
		{"together", []string{hints + processing + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}},
		{"with a part of another", []string{hints + processing[:10], processing[10:] + "HTTP/1.1 200", " OK\r\nContent-Length: 2\r\n\r\nok"}},
		{"with a long response", []string{hints + processing + "HTTP/1.1 200 OK\r\nContent-Length: 20480\r\n\r\n" + body}},
		{"with a long part of another", []string{hints + processing + "HTTP/1.1 200 OK\r\nX: " + body, body + "\r\nContent-Length: 2\r\n\r\nok"}},
		{"per byte", strings.Split(hints+processing+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "")},
	} {
		m, peers := peerMesh(t, "", func(int) *proxytest.Peer { return &proxytest.Peer{} })
		m.W.Options.Cut = 0
		client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
		m.RunUntil("the request", func() bool { return len(*peers) == 1 && len((*peers)[0].Heard) > 0 })
		for _, part := range c.parts {
			m.Apps[0].Loop.Do(func() { (*peers)[0].Conn.Write([]byte(part)) })
			m.W.Run(time.Millisecond)
		}
		m.W.Run(10 * time.Millisecond)
		got, want := 0, 1
		for _, head := range strings.Split(string(client.Heard), "\r\n\r\n") {
			if strings.HasPrefix(head, "HTTP/1.1 ") {
				got++
			}
		}
		interim := strings.HasPrefix(string(client.Heard), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n")
		if c.name != "none" {
			want = 3
		}
		if got != want || interim != (want == 3) {
			t.Errorf("%s: the client got %d heads: %.300q", c.name, got, client.Heard)
		}
		if connections(m) != 1 {
			t.Errorf("%s: the connection was not kept", c.name)
		}
		m.Settled()
	}
}

// TestOneByteBehindLongHead: a byte that comes in one read with the long head before it is not lost.
func TestOneByteBehindLongHead(t *testing.T) {
	long := "X: " + strings.Repeat("x", 20<<10) + "\r\n"
	for name, parts := range map[string][]string{
		"a body":           {"HTTP/1.1 200 OK\r\n" + long + "Content-Length: 1\r\n\r\n!"},
		"another response": {"HTTP/1.1 103 Early Hints\r\n" + long + "\r\nH", "TTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!"},
	} {
		m, peers := peerMesh(t, "timeout: 1s", func(int) *proxytest.Peer { return &proxytest.Peer{} })
		m.W.Options.Cut = 0
		client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
		m.RunUntil("the request", func() bool { return len(*peers) == 1 && len((*peers)[0].Heard) > 0 })
		for _, part := range parts {
			m.Apps[0].Loop.Do(func() { (*peers)[0].Conn.Write([]byte(part)) })
			m.W.Run(time.Millisecond)
		}
		m.W.Run(2 * time.Second)
		heard := string(client.Heard)
		if i := strings.Index(heard, "HTTP/1.1 200 OK\r\n"); i < 0 || !strings.HasSuffix(heard, "\r\n\r\n!") {
			t.Errorf("%s: the client got %.100q", name, heard[max(0, i):])
		}
		m.Settled()
	}
}

// TestStaleConnection: a request is sent once more if its connection was idle before and turns out to be closed, and only if it may be
// sent twice. It is not sent a third time, nor if the application had begun to respond.
func TestStaleConnection(t *testing.T) {
	for _, c := range []struct {
		name    string
		method  string
		closes  int    // connections that end with a request, after the first request
		says    string // before that
		replays int
		code    string
	}{
		{"GET", "GET", 1, "", 1, ""},
		{"POST", "POST", 1, "", 0, "upstream-reset"},
		{"a second time", "GET", 2, "", 1, "upstream-reset"},
		{"response has begun", "GET", 1, "HTTP/1.1 2", 0, "upstream-reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "idempotent: methods, retry: {on: [connect]}"})
			m.Apps[0].Stop()
			connections, requests := 0, 0
			m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
				connections++
				p := &proxytest.Peer{}
				p.Reply = func(heard []byte) []byte {
					if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
						return nil
					}
					if requests++; requests > 1 && requests <= 1+c.closes {
						p.ClosesAfterReply = true
						return append([]byte{}, c.says...)
					}
					return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				return p
			})
			m.OK(get(m))
			m.W.Run(10 * time.Millisecond)
			call := m.Raw(c.method + " / HTTP/1.1\r\nHost: compute\r\nContent-Length: 0\r\n\r\n")
			call.Nonce = ""
			m.Do(call)
			if m.Finish(call); call.Code != c.code {
				t.Errorf("status %d %s", call.Status, call.Code)
			}
			if n := m.Consumer.Report().Stats.Replays; n != uint64(c.replays) || requests != 2+c.replays || connections != 1+c.replays {
				t.Errorf("%d replays, %d requests on %d connections", n, requests, connections)
			}
			m.Settled()
		})
	}
}

// TestNewConnectionIsNotStale: a request is not sent once more if the application closes a connection that was not idle before.
func TestNewConnectionIsNotStale(t *testing.T) {
	m, peers := peerMesh(t, "idempotent: true, retry: {on: [connect]}", func(int) *proxytest.Peer {
		return &proxytest.Peer{ClosesAfterReply: true, Reply: func([]byte) []byte { return []byte{} }}
	})
	call := get(m)
	if n := m.Consumer.Report().Stats.Replays; call.Code != "upstream-reset" || n != 0 || len(*peers) != 1 {
		t.Errorf("status %d %s, %d replays on %d connections", call.Status, call.Code, n, len(*peers))
	}
	m.Settled()
}

// TestServerBecomesImpatient: once a server has closed a connection that was idle for two seconds, with or without a request, requests
// that may not be sent twice take no connection that was idle for almost as long.
func TestServerBecomesImpatient(t *testing.T) {
	for _, withRequest := range []bool{false, true} {
		var peers []*proxytest.Peer
		dropped := -1
		m, all := peerMesh(t, "idempotent: methods, retry: {on: [connect]}", func(n int) *proxytest.Peer {
			p := &proxytest.Peer{}
			p.Reply = func(heard []byte) []byte {
				if dropped == n {
					p.ClosesAfterReply = true
					return []byte{}
				}
				return responds(heard)
			}
			return p
		})
		post := func() {
			c := m.Raw("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 0\r\n\r\n")
			c.Nonce = ""
			m.OK(m.Complete(c))
		}
		post()
		m.W.Run(5 * time.Second) // longer than the idle timeout: the server is patient
		post()
		m.W.Run(2 * time.Second)
		peers = *all
		if len(peers) != 2 {
			t.Fatalf("%d connections, want a second one", len(peers))
		}
		if withRequest {
			dropped = 1
			m.OK(get(m))
		} else {
			m.Apps[0].Loop.Do(peers[1].Conn.Close)
			m.W.Run(time.Millisecond)
			post()
		}
		m.W.Run(1900 * time.Millisecond)
		if post(); len(*all) != 4 {
			t.Errorf("with a request %t: %d connections, want 4", withRequest, len(*all))
		}
		m.Settled()
	}
}

// TestStaleConnectionWithoutRoom: a request whose connection was stale waits for another if the driver has no room for a dial.
func TestStaleConnectionWithoutRoom(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s, idempotent: methods, retry: {on: [connect]}"})
	a := m.Apps[0]
	send := func(takes time.Duration) *proxytest.Call {
		a.Delay = func() time.Duration { return takes }
		c := m.Get("/")
		m.Do(c)
		m.W.Run(10 * time.Millisecond)
		return c
	}
	calls := []*proxytest.Call{send(2 * time.Second), send(50 * time.Millisecond)}
	d.MaxDials, d.Dialling = 1, 1 // for another endpoint
	calls = append(calls, send(50*time.Millisecond))
	m.OK(calls[1:]...)
	if d.Refused == 0 {
		t.Error("no dial was refused")
	}
	a.DropNext = true
	stale := send(0)
	m.OK(append(calls, stale)...)
	if n := m.Consumer.Report().Stats.Replays; n != 1 || stale.Took < 1500*time.Millisecond || d.Dials != 2 {
		t.Errorf("%d replays, %d dials, after %v", n, d.Dials, stale.Took)
	}
	m.Settled()
}

// TestStaleWithoutIdling: a connection that went from one request to the next at once is stale, too, if its server then closes it.
func TestStaleWithoutIdling(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s, idempotent: methods, retry: {on: [connect]}"})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return 50 * time.Millisecond }
	first, second := m.Get("/"), m.Get("/")
	m.Do(first)
	m.W.Run(10 * time.Millisecond)
	d.MaxDials, d.Dialling = 1, 1 // for another endpoint
	m.Do(second)
	m.OK(first)
	a.DropNext = true
	d.Dialling = 0
	m.OK(second)
	if n := m.Consumer.Report().Stats.Replays; n != 1 || d.Dials != 2 {
		t.Errorf("%d replays, %d dials", n, d.Dials)
	}
	m.Settled()
}

// TestShedReceived: while memory is full, the caller is closed whose response takes much, as far as that has arrived.
func TestShedReceived(t *testing.T) {
	m, peers := peerMesh(t, "timeout: 10s", func(int) *proxytest.Peer { return &proxytest.Peer{} })
	var clients []*proxytest.Peer
	for i, size := range []int{1 << 10, 2 * shard.LeastShed} {
		clients = append(clients, m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"))
		m.RunUntil("the request", func() bool { return len(*peers) == i+1 && len((*peers)[i].Heard) > 0 })
		m.Apps[0].Loop.Do(func() {
			(*peers)[i].Conn.Write(append([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf0000\r\n"), make([]byte, size)...))
		})
		m.W.Run(10 * time.Millisecond)
	}
	m.Consumer.Proc.Charge(1 << 30)
	m.Apps[0].Loop.Do(func() { (*peers)[1].Conn.Write(make([]byte, 4*shard.LeastShed)) }) // the sidecar notices
	m.W.Run(time.Second)
	if clients[0].Ended || !clients[1].Ended {
		t.Errorf("with little memory a caller was closed: %t; with much: %t", clients[0].Ended, clients[1].Ended)
	}
	m.Consumer.Proc.Charge(-1 << 30)
	m.W.Faults.Reset(clients[0].Conn)
	m.Settled()
}

// TestRetired: an endpoint that has left the service serves what it has. Its connections close then, and idle ones at once.
func TestRetired(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Service: "timeout: 10s, lb: {policy: weighted_round_robin}"})
	var conns []*proxytest.AppConn
	a := m.Apps[0]
	a.Stop()
	m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		conns = append(conns, &proxytest.AppConn{A: a})
		return conns[len(conns)-1]
	})
	open := func() (n int) {
		for _, c := range conns {
			if c.Open() {
				n++
			}
		}
		return n
	}
	idle := m.Crowd(8, 1, 10)
	m.Finish(idle...)
	m.Apps.Slow(500 * time.Millisecond)
	calls := m.Crowd(4, 1, 10)
	m.W.Run(100 * time.Millisecond)
	if n := open(); n != 4 {
		t.Fatalf("%d connections to the endpoint", n)
	}
	m.Consumer.Update("compute", m.Endpoint(1))
	m.W.Run(100 * time.Millisecond)
	if n := open(); n != 2 {
		t.Errorf("%d connections to the endpoint that has left, want those with a request", n)
	}
	m.Finish(calls...)
	m.OK(calls...)
	m.W.Run(100 * time.Millisecond)
	if n := open(); n != 0 {
		t.Errorf("%d connections to an endpoint that has left, and has no request", n)
	}
	m.W.Run(10 * time.Second) // more than idle_timeout
	m.Settled()
}

// TestFirstByteHeld: the head of a stream is held until its first byte, if first bytes have followed heads, so that a hedge may
// win: then the connection of the primary closes. A head alone is passed on after a while.
func TestFirstByteHeld(t *testing.T) {
	const ms = time.Millisecond
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name           string
		primary, hedge time.Duration // from the request to the first byte; 0 means never
		winner         int           // index of its attempt
		least, most    time.Duration // when the head is passed on
	}{
		{"first byte", 10 * ms, 0, 1, 10 * ms, 13 * ms},
		{"hedge", 0, 7 * ms, 2, 27 * ms, 30 * ms},
		{"neither", 0, 0, 1, 40 * ms, 43 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true,
				Service: "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}"})
			firstBytes := []time.Duration{2 * ms, c.primary, c.hedge} // of attempts in the order of their arrival
			var seen []*proxytest.Peer
			for _, a := range m.Apps {
				a.Stop()
				m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
					p := &proxytest.Peer{}
					p.Reply = func(heard []byte) []byte {
						if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
							return nil
						}
						after := firstBytes[len(seen)]
						seen = append(seen, p)
						a.Loop.After(ms, &loop.Timer{Fire: func() { p.Conn.Write([]byte(head)) }})
						if after > 0 {
							a.Loop.After(after, &loop.Timer{Fire: func() { p.Conn.Write([]byte("5\r\nfirst\r\n")) }})
						}
						return nil
					}
					return p
				})
			}
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
			if learn := consumer.Responses[0].Source.Stream.OnFirstByte(); learn != nil {
				learn()
			}
			m.W.Run(500 * ms)
			began := m.W.Now()
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("the second stream", func() bool { return len(consumer.Responses) == 2 })
			if took := m.W.Now() - began; took < c.least || took > c.most {
				t.Errorf("the head was passed on after %v, want %v to %v", took, c.least, c.most)
			}
			m.W.Run(5 * ms)
			for i, p := range seen {
				if i > 0 && p.Ended != (i != c.winner) {
					t.Errorf("the connection of attempt %d has ended: %t", i, p.Ended)
				}
			}
			proxytest.CheckStreamsSettled(m, consumer)
		})
	}
}

// TestUnwantedIsLearned: of the attempts that nobody awaits the first eight are left to finish, of each kind. Of later ones seven of
// eight are closed, unless a connection takes longer than the work that is left.
func TestUnwantedIsLearned(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		primary time.Duration // that the first attempt takes; others take 200 ms if that takes less
		hedge   time.Duration
		leaves  bool          // the caller leaves
		connect time.Duration // that a connection takes
		when    string        // it does: always, first or lately
		closed  uint64        // of the last eight attempts
	}{
		{"deserted", 200 * ms, 0, true, 0, "", 7},
		{"overtaken", 200 * ms, ms, false, 0, "", 7},
		{"needless", 40 * ms, 200 * ms, false, 0, "", 7},
		{"slow to connect", 200 * ms, 0, true, 40 * ms, "always", 0},
		{"slow to connect at first", 200 * ms, 0, true, 100 * ms, "first", 7},
		{"slow to connect lately", 200 * ms, 0, true, 100 * ms, "lately", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := "timeout: 10s, connect_timeout: 1s, idempotent: true, retry: {on: []}"
			if !c.leaves {
				service += ", hedge: {mode: on, delay: 20ms, budget: 1}"
			}
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Service: service})
			slow := func(from, to string) sim.Path {
				p := sim.DefaultPaths(from, to)
				if !strings.Contains(from+to, "10.99") { // not that of a client
					p.Latency = c.connect / 2
				}
				return p
			}
			switch c.when {
			case "always":
				m.W.Net.SetPaths(slow)
			case "first":
				m.W.Net.SetPaths(slow)
				m.OK(m.Crowd(8, 1, 10)...)
				m.W.Net.SetPaths(sim.DefaultPaths)
				m.OK(m.Crowd(60, 1, 10)...)
			case "lately":
				m.OK(m.Crowd(60, 1, 10)...)
				m.W.Run(6 * time.Second) // the idle timeout
				m.W.Net.SetPaths(slow)
				m.OK(m.Crowd(4, 1, 10)...)
				m.W.Net.SetPaths(sim.DefaultPaths)
			}
			attempts := 0
			for _, a := range m.Apps {
				a.Delay = func() time.Duration {
					if attempts++; attempts == 1 {
						return c.primary
					}
					return c.hedge
				}
			}
			closed := func() uint64 { return m.Consumer.Stats("compute").UnwantedClosed }
			var before uint64
			for i := range 16 {
				if i == 8 {
					if before = closed(); before != 0 {
						t.Errorf("%d of the first eight were closed", before)
					}
				}
				attempts = 0
				call := m.Get("/")
				client := m.Do(call)
				if m.RunUntil("an attempt", func() bool { return attempts == 1 }); c.leaves {
					m.W.Run(20 * ms)
					client.Leave()
				} else {
					m.OK(call)
				}
				m.Settled()
			}
			if n := closed() - before; n != c.closed {
				t.Errorf("%d of the last eight were closed, want %d", n, c.closed)
			}
		})
	}
}

// TestAwaitedTeachesNothing: how long the application works for nobody is not learned from later requests on the same connection.
func TestAwaitedTeachesNothing(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s, retry: {on: []}"})
	takes := 200 * time.Millisecond
	m.Apps[0].Delay = func() time.Duration { return takes }
	for i := range 16 {
		client := m.Do(m.Get("/"))
		m.W.Run(20 * time.Millisecond)
		client.Leave()
		m.W.Run(200 * time.Millisecond)
		if n := m.Consumer.Report().Services[0].Endpoints[0].Pending; n != 0 {
			t.Errorf("attempt %d is pending when the application would have responded", i)
		}
		m.W.Run(300 * time.Millisecond)
		m.OK(m.Complete(m.Get("/")))
	}
	if n := m.Consumer.Stats("compute").UnwantedClosed; n < 7 {
		t.Errorf("%d attempts were closed", n)
	}
	m.Settled()
}

// TestUnwantedKinds: how long the application works on is learned for each kind of attempt anew, and each is counted.
func TestUnwantedKinds(t *testing.T) {
	const ms = time.Millisecond
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true,
		Service: "timeout: 10s, idempotent: true, retry: {on: []}, hedge: {mode: on, delay: 20ms, budget: 1}"})
	attempts, takes := 0, [2]time.Duration{}
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			attempts++
			return takes[min(attempts, 2)-1]
		}
	}
	for _, kind := range []struct {
		name           string
		primary, hedge time.Duration
	}{{"deserted", 200 * ms, 200 * ms}, {"overtaken", 200 * ms, ms}, {"needless", 40 * ms, 200 * ms}} {
		var finished, closed uint64
		each := uint64(1)
		if kind.name == "deserted" {
			each = 2 // the hedge, too
		}
		for i := range 12 {
			if each == 2 && i >= 8 {
				break
			}
			before := *m.Consumer.Stats("compute")
			attempts, takes = 0, [2]time.Duration{kind.primary, kind.hedge}
			call := m.Get("/")
			client := m.Do(call)
			if m.RunUntil("both attempts", func() bool { return attempts == 2 }); each == 2 {
				m.W.Run(10 * ms)
				client.Leave()
			} else {
				m.OK(call)
			}
			m.Settled()
			after := m.Consumer.Stats("compute")
			finished, closed = finished+after.UnwantedFinished-before.UnwantedFinished, closed+after.UnwantedClosed-before.UnwantedClosed
			if finished+closed != uint64(i+1)*each || finished < min(8, finished+closed) {
				t.Errorf("%s: after %d requests %d attempts were left to finish, and %d were closed", kind.name, i+1, finished, closed)
			}
		}
		if closed < 3 {
			t.Errorf("%s: %d attempts were left to finish, and %d were closed", kind.name, finished, closed)
		}
	}
}

// TestEarlyResponse: a connection on which a response came before all of its request was sent carries no other request.
func TestEarlyResponse(t *testing.T) {
	m, peers := peerMesh(t, "timeout: 10s", func(int) *proxytest.Peer { return &proxytest.Peer{Reply: responds} })
	m.OK(get(m))
	m.W.Faults.PauseReading((*peers)[0].Conn, true)
	post := m.Post(2 << 20)
	post.Nonce = ""
	m.Do(post)
	m.W.Run(100 * time.Millisecond)
	m.Apps[0].Loop.Do(func() { (*peers)[0].Conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) })
	m.OK(post)
	m.OK(get(m))
	if len(*peers) != 2 {
		t.Errorf("%d connections", len(*peers))
	}
	m.Settled()
}

// TestIncompleteHeadCounts: a head counts in limits.buffered as far as it has arrived.
func TestIncompleteHeadCounts(t *testing.T) {
	m, peers := peerMesh(t, "timeout: 10s", func(int) *proxytest.Peer { return &proxytest.Peer{} })
	client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.RunUntil("the request", func() bool { return len(*peers) == 1 && len((*peers)[0].Heard) > 0 })
	m.Apps[0].Loop.Do(func() { (*peers)[0].Conn.Write([]byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 50<<10))) })
	m.W.Run(100 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); n < 50<<10 {
		t.Errorf("%d bytes are counted of a head with more", n)
	}
	m.W.Faults.Reset(client.Conn)
	m.Settled()
}

// TestUnwantedBesideIdle: a connection that was closed since nobody awaits its response is not replaced if there is an idle one, nor if
// the endpoint has left the service.
func TestUnwantedBesideIdle(t *testing.T) {
	for _, c := range []struct {
		name        string
		before      func(a *silentApp)
		connections int
	}{
		{"no other", func(*silentApp) {}, 3},
		{"an idle one", func(a *silentApp) {
			a.m.Apps[0].Loop.Do(func() { a.conns[0].Conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) })
			a.m.W.Run(time.Millisecond)
		}, 2},
		{"retired", func(a *silentApp) { a.m.Consumer.Update("compute") }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newSilentApp(t, "close")
			clients := a.send(2)
			a.m.W.Run(20 * time.Millisecond)
			c.before(a)
			a.m.W.Run(time.Millisecond)
			left := clients[0]
			if len(left.Heard) > 0 { // it has its response
				left = clients[1]
			}
			a.m.W.Faults.Reset(left.Conn)
			a.m.W.Run(10 * time.Millisecond)
			if len(a.conns) != c.connections {
				t.Errorf("%d connections, want %d", len(a.conns), c.connections)
			}
			a.m.W.Run(12 * time.Second)
			a.m.Settled()
		})
	}
}

// TestNames: with TLS each request takes a connection that proves the host of the request. At the bound of hosts one without a request
// gives way.
func TestNames(t *testing.T) {
	const most = 64
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s, idle_timeout: 1m, tls: {ca: system, sni: host}"})
	send := func(host int) *proxytest.Call {
		c := m.Raw(fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.test\r\n\r\n", host))
		c.Nonce = ""
		m.Do(c)
		m.W.Run(10 * time.Millisecond)
		return c
	}
	takes := time.Second
	m.Apps[0].Delay = func() time.Duration { return takes }
	busy := send(0)
	takes = time.Millisecond
	for host := 1; host < most; host++ {
		m.OK(send(host))
	}
	m.OK(send(1), send(most), busy) // h2.test gives way
	m.OK(send(0))
	for i, r := range d.Receivers {
		if name, want := r.(loop.Named).ServerName(), fmt.Sprintf("h%d.test", i); name != want {
			t.Errorf("connection %d is to prove %q, want %q", i, name, want)
		}
	}
	if len(d.Receivers) != most+1 {
		t.Errorf("%d connections to %d hosts", len(d.Receivers), most+1)
	}
	m.OK(send(2))
	if len(d.Receivers) != most+2 {
		t.Errorf("%d connections, want another one to the host that has given way", len(d.Receivers))
	}
	m.Settled()
}

// TestRefusedDialWithoutCaller: a dial that the driver refuses after its caller has left delays nobody.
func TestRefusedDialWithoutCaller(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 10s"})
	m.Apps[0].Delay = func() time.Duration { return 300 * time.Millisecond }
	first := m.Post(10)
	m.Do(first)
	m.W.Run(10 * time.Millisecond)
	d.Dialling, d.RefuseAfter = 1, 100*time.Millisecond
	client := m.Do(m.Post(10))
	m.W.Run(10 * time.Millisecond)
	client.Leave()
	m.W.Run(95 * time.Millisecond)
	d.Dialling, d.RefuseAfter = 0, 0
	second := m.Post(10)
	m.Do(second)
	m.OK(first, second)
	if d.Refused != 1 || second.Took > 350*time.Millisecond {
		t.Errorf("%d dials were refused; the next request took %v", d.Refused, second.Took)
	}
	m.Settled()
}

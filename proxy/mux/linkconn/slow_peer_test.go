package linkconn_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestSlowMessageKeepsTheLink checks that a link which carries a long message is not idle,
// although no message is complete.
func TestSlowMessageKeepsTheLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 10m", Provider: "timeout: 10m", Bandwidth: 40_000,
		Limits: "timeouts: {body: 10m}"})
	m.Apps[0].Body = func(req *protocol.Request) []byte { return bytes.Clone(req.Body) }
	c := m.Post(proxytest.MaxMessage)
	m.Do(c)
	if !m.W.RunUntil(func() bool { return c.Done }, 20*time.Minute) {
		t.Fatal("no response")
	}
	m.OK(c)
	m.Settled()
}

// pong responds to any input, so that its end of a link counts as alive.
func pong([]byte) []byte { return []byte{9, 1, 0} }

// firstThen responds with b to the first request on a link, and then with next.
func firstThen(b []byte, next func([]byte) []byte) func([]byte) []byte {
	said := false
	return func(heard []byte) []byte {
		switch {
		case said:
			return next(heard)
		case len(heard) <= len(proxytest.LinkPreface(link.Dialer)):
			return nil
		}
		said = true
		return b
	}
}

// response returns the frames of a response to the first request.
func response(nonce string, size int) []byte {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	w.Response(1, &protocol.Response{
		Status: 200, DeclaredLength: -1, Body: make([]byte, size),
		Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: []byte(nonce)}},
	}, protocol.CodecHTTP, nil)
	return bytes.TrimPrefix(w.Append(nil, 1<<30), proxytest.LinkPreface(link.Acceptor))
}

// wholeFrames returns those of b's frames that end within its first n bytes.
func wholeFrames(b []byte, n int) []byte {
	for end := 0; ; {
		_, id := binary.Uvarint(b[end+1:])
		size, length := binary.Uvarint(b[end+1+id:])
		next := end + 1 + id + length + int(size)
		if next > n {
			return b[:end]
		}
		end = next
	}
}

// TestPeerWithoutCredit checks that a link closes after timeouts.write when its peer is alive
// and reads, but grants no credit. The memory of the messages that waited is free then.
func TestPeerWithoutCredit(t *testing.T) {
	const limits = "timeouts: {write: 5s}"
	t.Run("acceptor", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: limits})
		m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, proxytest.MaxMessage) }
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, time.Minute, nil) }), Reply: pong}
		m.DialIngress(p)
		m.W.Run(time.Second)
		if n := m.Nodes[1].Proc.Held(); n < proxytest.MaxMessage {
			t.Errorf("%d bytes held for the peer, want the response", n)
		}
		m.CheckClosesAfter(p, 3*time.Second, 2*time.Second)
		m.Settled()
		if n := m.Nodes[1].WriteTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
	t.Run("dialler", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: limits, Service: "timeout: 10m"})
		p := &proxytest.Peer{Says: proxytest.LinkPreface(link.Acceptor), Reply: pong}
		m.ReplaceProvider(p)
		c := m.Post(proxytest.MaxMessage)
		m.Do(c)
		m.CheckClosesAfter(p, 5*time.Second, time.Second)
		m.Finish(c)
		if c.Status != 502 || c.Code != "upstream-reset" {
			t.Errorf("status %d %s, want 502 upstream-reset", c.Status, c.Code)
		}
		m.Settled()
		if n := m.Consumer.WriteTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
}

// TestSlowCreditKeepsTheLink checks that a peer which grants a little credit within each
// timeouts.write keeps its link.
func TestSlowCreditKeepsTheLink(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {write: 5s}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, proxytest.MaxMessage) }
	p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, time.Minute, nil) }), Reply: pong}
	m.DialIngress(p)
	for range 10 {
		m.W.Run(4 * time.Second)
		m.Clients.Do(func() { p.Conn.Write([]byte{4, 0, 1, 100}) })
	}
	if p.Ended {
		t.Error("closed although the peer granted credit in time")
	}
	m.CheckClosesAfter(p, 4*time.Second, 2*time.Second)
	m.Settled()
}

// TestPeerThatReadsNothing checks that its link closes after timeouts.write.
func TestPeerThatReadsNothing(t *testing.T) {
	const limits = "timeouts: {write: 5s}"
	t.Run("acceptor", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: limits})
		m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 12_000) }
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) {
			for id := range uint64(300) {
				w.Request(id+1, proxytest.LinkRequest, time.Minute, nil)
			}
		})}
		m.DialIngress(p)
		m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
		m.W.Faults.PauseReading(p.Conn, true)
		m.W.Run(time.Second)
		if n := m.Nodes[1].Proc.Held(); n < 1<<20 {
			t.Errorf("%d bytes held for the peer", n)
		}
		m.W.Run(4 * time.Second)
		m.Settled()
		if n := m.Nodes[1].WriteTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
	t.Run("dialler", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: limits, Service: "timeout: 10m, retry: {on: []}"})
		p := &proxytest.Peer{Says: proxytest.LinkPreface(link.Acceptor)}
		m.ReplaceProvider(p)
		calls := m.Burst(1, 10)
		m.W.RunUntil(func() bool { return len(p.Heard) > 40 }, time.Second)
		m.W.Faults.PauseReading(p.Conn, true)
		calls = append(calls, m.Burst(300, 12_000)...)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n["upstream-reset"]+n["upstream-connect"] != len(calls) {
			t.Errorf("responses %v, want %d for the loss of the link", n, len(calls))
		}
		m.Settled()
		if n := m.Consumer.WriteTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
}

// TestIdleLinkCloses checks that both ends close a link that has carried nothing for a minute.
// A peer without a preface loses its link at the first keepalive.
func TestIdleLinkCloses(t *testing.T) {
	t.Run("acceptor", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(*link.Writer) {}), Reply: pong}
		m.DialIngress(p)
		m.CheckClosesAfter(p, 60*time.Second, 30*time.Second)
	})
	t.Run("behind a request", func(t *testing.T) { // which ends just before a keepalive
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 1m", Provider: "timeout: 1m"})
		m.Apps[0].Delay = func() time.Duration { return 19 * time.Second }
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, time.Minute, nil) }), Reply: pong}
		m.DialIngress(p)
		m.RunUntil("the response", func() bool { return m.Apps[0].Served == 1 && m.Nodes[1].Proc.Pending() == 0 })
		m.CheckClosesAfter(p, 60*time.Second, 10*time.Second)
	})
	t.Run("after another request", func(t *testing.T) { // the time before the request does not count
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "timeout: 1m"})
		m.Apps[0].Delay = func() time.Duration { return 12 * time.Second }
		w, p := m.DialLink()
		m.W.Run(45 * time.Second)
		w.Request(1, proxytest.LinkRequest, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		m.RunUntil("the response", func() bool { return m.Apps[0].Served == 1 && m.Nodes[1].Proc.Pending() == 0 })
		m.CheckClosesAfter(p, 60*time.Second, 20*time.Second)
	})
	t.Run("dialler", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		c := m.Post(10)
		p := &proxytest.Peer{Says: proxytest.LinkPreface(link.Acceptor), Reply: firstThen(response(c.Nonce, 10), pong)}
		m.ReplaceProvider(p)
		m.Do(c)
		m.OK(c)
		m.CheckClosesAfter(p, 60*time.Second, 30*time.Second)
		m.Settled()
	})
	t.Run("without a preface", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		p := &proxytest.Peer{}
		m.DialIngress(p)
		m.CheckClosesAfter(p, 9*time.Second, 2*time.Second)
	})
}

// TestSlowProvider checks which requests fail when a provider sends too slowly: all on the link
// when a frame or the preface is incomplete, one when its response of several frames is.
func TestSlowProvider(t *testing.T) {
	silence := func([]byte) []byte { return nil }
	preface, short, long := proxytest.LinkPreface(link.Acceptor), response("n", 1000), response("n", 100_000)
	for _, c := range []struct {
		name, code   string
		says         []byte
		reply        func([]byte) []byte
		least, slack time.Duration
		ends         bool // the link
	}{
		{"no preface", "upstream-connect", nil, silence, 0, time.Second, true},
		{"half a preface", "upstream-connect", preface[:5], silence, 0, time.Second, true},
		{"half a frame", "upstream-reset", preface, firstThen(short[:len(short)/2], silence), 4 * time.Second, 2 * time.Second, true},
		{"half a response", "deadline", preface, firstThen(wholeFrames(long, 40_000), pong), 4 * time.Second, 2 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 1m", Limits: "timeouts: {body: 4s}"})
			p := &proxytest.Peer{Says: c.says, Reply: c.reply}
			m.ReplaceProvider(p)
			k := m.Post(10)
			m.Do(k)
			m.Finish(k)
			if k.Code != c.code || k.Took < c.least || k.Took > c.least+c.slack {
				t.Errorf("status %d %s after %v, want %s after %v", k.Status, k.Code, k.Took, c.code, c.least)
			}
			m.W.Run(100 * time.Millisecond)
			if p.Ended != c.ends {
				t.Errorf("link closed: %t, want %t", p.Ended, c.ends)
			}
		})
	}
}

// TestExpiredRequest: a link gives back the memory of a request that takes its peer too long to send, and goes on.
func TestExpiredRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {body: 4s}"})
	long := *proxytest.LinkRequest
	long.Body = make([]byte, 100_000)
	says := proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, &long, time.Minute, nil) })
	preface := len(proxytest.LinkPreface(link.Dialer))
	p := &proxytest.Peer{Says: append(says[:preface:preface], wholeFrames(says[preface:], 80_000)...)}
	m.DialIngress(p)
	m.W.Run(3 * time.Second)
	if n := m.Nodes[1].Proc.Held(); n < 60_000 {
		t.Errorf("%d bytes are held of a request that is incomplete", n)
	}
	m.W.Run(3 * time.Second)
	if n := m.Nodes[1].Proc.Held(); n > 10_000 || p.Ended {
		t.Errorf("%d bytes are held of a request that is refused, the link is closed: %t", n, p.Ended)
	}
	m.Clients.Do(func() { p.Conn.Close() })
	m.Settled()
}

// TestCreditWait: the time in which a peer must grant credit begins anew with each wait, and ends with what waits: a request that was
// cancelled, or has its response.
func TestCreditWait(t *testing.T) {
	newMesh := func(t *testing.T) (*proxytest.Mesh, *proxytest.Peer, *proxytest.Client, *proxytest.Call) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 60s, retry: {on: []}", Limits: "timeouts: {write: 5s}"})
		p := &proxytest.Peer{Says: proxytest.LinkPreface(link.Acceptor), Reply: pong}
		m.ReplaceProvider(p)
		call := m.Post(proxytest.MaxMessage)
		client := m.Do(call)
		m.W.Run(4 * time.Second)
		return m, p, client, call
	}
	t.Run("cancelled", func(t *testing.T) {
		m, p, client, _ := newMesh(t)
		client.Leave()
		m.W.Run(100 * time.Millisecond)
		m.Do(m.Post(proxytest.MaxMessage))
		if m.W.Run(4800 * time.Millisecond); p.Ended {
			t.Error("the link closes too early")
		}
		if m.W.Run(time.Second); !p.Ended {
			t.Error("the link does not close")
		}
	})
	t.Run("response", func(t *testing.T) {
		m, p, _, call := newMesh(t)
		m.W.Loop("10.0.1.1-raw").Do(func() { p.Conn.Write(response(call.Nonce, 10)) })
		m.OK(call)
		if m.W.Run(20 * time.Second); p.Ended || m.Consumer.WriteTimeouts() != 0 {
			t.Errorf("the link has closed: %t, %d timeouts", p.Ended, m.Consumer.WriteTimeouts())
		}
		m.Settled()
	})
}

// TestPings: a link with a request in flight sends a PING after ten seconds of silence, and closes after ten more. A peer that answers
// keeps the link.
func TestPings(t *testing.T) {
	const settings = "timeout: 10m, retry: {on: []}"
	ends := map[string]func(t *testing.T, p *proxytest.Peer) *proxytest.Mesh{
		"acceptor": func(t *testing.T, p *proxytest.Peer) *proxytest.Mesh {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: settings})
			m.Apps[0].Delay = func() time.Duration { return time.Hour }
			p.Says = proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, 10*time.Minute, nil) })
			m.DialIngress(p)
			return m
		},
		"dialler": func(t *testing.T, p *proxytest.Peer) *proxytest.Mesh {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: settings})
			p.Says = proxytest.LinkPreface(link.Acceptor)
			m.ReplaceProvider(p)
			m.Do(m.Post(10))
			return m
		},
	}
	for name, meet := range ends {
		t.Run(name, func(t *testing.T) {
			p := &proxytest.Peer{}
			meet(t, p).CheckClosesAfter(p, 29*time.Second, 2*time.Second)
			var m *proxytest.Mesh
			pings := 0
			p = &proxytest.Peer{}
			p.Reply = func(heard []byte) []byte {
				if m == nil || m.W.Now() < 10*time.Second {
					return nil
				}
				pings++
				return pong(heard)
			}
			m = meet(t, p)
			m.W.Options.Cut = 0 // each PING is one read
			if m.W.Run(110 * time.Second); p.Ended || pings != 5 {
				t.Errorf("a peer that answers got %d PINGs, and its link has closed: %t", pings, p.Ended)
			}
		})
	}
}

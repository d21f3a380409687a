package proxy_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

// visit connects p to the first provider's link listener.
func (m *mesh) visit(p *peer) {
	m.clients.Do(func() { m.clients.Dial("10.0.1.1:15006", time.Second, p) })
}

// impostor puts p in the place of the first provider's sidecar.
func (m *mesh) impostor(p *peer) {
	m.nodes[1].stop[0]()
	m.w.Listen("10.0.1.1:15006", m.w.Loop("10.0.1.1-raw"), func() proxy.Stream { return p })
}

// frames are what w has to say, behind the preface of a dialler.
func frames(say func(w *link.Writer)) []byte {
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	say(w)
	return w.Append(nil, 1<<30)
}

// get is a short request.
var get = &protocol.Request{Service: []byte("local"), Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}

// pong answers whatever comes, so that its end of a link counts as alive.
func pong([]byte) []byte { return []byte{9, 1, 0} }

// once replies with b to the first request on a link, and then with next.
func once(b []byte, next func([]byte) []byte) func([]byte) []byte {
	said := false
	return func(heard []byte) []byte {
		switch {
		case said:
			return next(heard)
		case len(heard) <= len(linkPreface(link.Dialer)):
			return nil
		}
		said = true
		return b
	}
}

// answer is the frames of a response to the first request.
func answer(nonce string, size int) []byte {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	w.Response(1, &protocol.Response{
		Status: 200, DeclaredLength: -1, Body: make([]byte, size),
		Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: []byte(nonce)}},
	}, protocol.CodecHTTP, nil)
	return bytes.TrimPrefix(w.Append(nil, 1<<30), linkPreface(link.Acceptor))
}

// wholeFrames is what of b's frames ends within its first n bytes.
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

// writeTimeouts is how many connections the node has closed for it.
func (n *node) writeTimeouts() (count uint64) {
	for i, w := range n.proc.Workers() {
		n.all[i].Do(func() { count += w.Report().Stats.WriteTimeouts })
	}
	return count
}

// closesAfter runs until p has lost its connection, and checks that this takes
// at least so long and at most so much longer.
func (m *mesh) closesAfter(p *peer, least, slack time.Duration) {
	m.t.Helper()
	m.w.RunUntil(func() bool { return p.conn != nil }, time.Second)
	began := m.w.Now()
	m.w.RunUntil(func() bool { return p.ended }, least+slack+time.Minute)
	if took := m.w.Now() - began; !p.ended || took < least || took > least+slack {
		m.t.Errorf("closed %t, after %v; want it after %v to %v", p.ended, took, least, least+slack)
	}
}

// A link whose peer takes the frames and gives no credit for them, while it is
// alive, ends after timeouts.write, and what waited for the credit is free.
func TestPeerThatGrantsNoCreditIsClosed(t *testing.T) {
	const limits = "timeouts: {write: 5s}"
	t.Run("acceptor", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1, limits: limits})
		m.apps[0].body = func(*protocol.Request) []byte { return make([]byte, maxMessage) }
		p := &peer{says: frames(func(w *link.Writer) { w.Request(1, get, time.Minute, nil) }), reply: pong}
		m.visit(p)
		m.w.Run(time.Second)
		if n := m.nodes[1].proc.Held(); n < maxMessage {
			t.Errorf("%d bytes held for the peer, want the answer", n)
		}
		m.closesAfter(p, 3*time.Second, 2*time.Second)
		m.settled()
		if n := m.nodes[1].writeTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
	t.Run("dialler", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1, limits: limits, service: ", timeout: 10m"})
		p := &peer{says: linkPreface(link.Acceptor), reply: pong}
		m.impostor(p)
		c := m.post(maxMessage)
		m.do(c)
		m.closesAfter(p, 5*time.Second, time.Second)
		m.finish(c)
		if c.status != 502 || c.code != "upstream-reset" {
			t.Errorf("status %d %s, want 502 upstream-reset", c.status, c.code)
		}
		m.settled()
		if n := m.consumer.writeTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
}

// One that gives credit in every timeouts.write, be it little, keeps its link.
func TestSlowCreditKeepsTheLink(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: "timeouts: {write: 5s}"})
	m.apps[0].body = func(*protocol.Request) []byte { return make([]byte, maxMessage) }
	p := &peer{says: frames(func(w *link.Writer) { w.Request(1, get, time.Minute, nil) }), reply: pong}
	m.visit(p)
	for range 10 {
		m.w.Run(4 * time.Second)
		m.clients.Do(func() { p.conn.Write([]byte{4, 0, 1, 100}) })
	}
	if p.ended {
		t.Error("closed although the peer took something in time")
	}
	m.closesAfter(p, 4*time.Second, 2*time.Second)
	m.settled()
}

// A link whose peer reads nothing ends after timeouts.write.
func TestPeerThatReadsNothingIsClosed(t *testing.T) {
	const limits = "timeouts: {write: 5s}"
	t.Run("acceptor", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1, limits: limits})
		m.apps[0].body = func(*protocol.Request) []byte { return make([]byte, 12_000) }
		p := &peer{says: frames(func(w *link.Writer) {
			for id := range uint64(300) {
				w.Request(id+1, get, time.Minute, nil)
			}
		})}
		m.visit(p)
		m.w.RunUntil(func() bool { return p.conn != nil }, time.Second)
		m.w.Hold(p.conn, true)
		m.w.Run(time.Second)
		if n := m.nodes[1].proc.Held(); n < 1<<20 {
			t.Errorf("%d bytes held for the peer", n)
		}
		m.w.Run(4 * time.Second)
		m.settled()
		if n := m.nodes[1].writeTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
	t.Run("dialler", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1, limits: limits, service: ", timeout: 10m, retry: {on: []}"})
		p := &peer{says: linkPreface(link.Acceptor)}
		m.impostor(p)
		calls := m.burst(1, 10)
		m.w.RunUntil(func() bool { return len(p.heard) > 40 }, time.Second)
		m.w.Hold(p.conn, true)
		calls = append(calls, m.burst(300, 12_000)...)
		m.finish(calls...)
		if n := codes(calls); n["upstream-reset"]+n["upstream-connect"] != len(calls) {
			t.Errorf("answers %v, want %d for the loss of the link", n, len(calls))
		}
		m.settled()
		if n := m.consumer.writeTimeouts(); n != 1 {
			t.Errorf("%d write timeouts counted, want 1", n)
		}
	})
}

// Both ends of a link that carries nothing close it a minute later, by their
// beats; a peer that says nothing at all loses it with the first.
func TestIdleLinkCloses(t *testing.T) {
	t.Run("acceptor", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1})
		p := &peer{says: frames(func(*link.Writer) {}), reply: pong}
		m.visit(p)
		m.closesAfter(p, 60*time.Second, 30*time.Second)
	})
	t.Run("dialler", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1})
		c := m.post(10)
		p := &peer{says: linkPreface(link.Acceptor), reply: once(answer(c.nonce, 10), pong)}
		m.impostor(p)
		m.do(c)
		m.finish(c)
		m.ok(c)
		m.closesAfter(p, 60*time.Second, 30*time.Second)
		m.settled()
	})
	t.Run("without a preface", func(t *testing.T) {
		m := newMesh(t, meshOptions{apps: 1})
		p := &peer{}
		m.visit(p)
		m.closesAfter(p, 9*time.Second, 2*time.Second)
	})
}

// What a provider sends too slowly fails the requests that wait for it: all of
// the link when a frame or the preface does not end, one when it is an answer in
// several frames.
func TestSlowProvider(t *testing.T) {
	silence := func([]byte) []byte { return nil }
	preface, short, long := linkPreface(link.Acceptor), answer("n", 1000), answer("n", 100_000)
	for _, c := range []struct {
		name, code   string
		says         []byte
		reply        func([]byte) []byte
		least, slack time.Duration
		ends         bool // the link
	}{
		{"no preface", "upstream-connect", nil, silence, 0, time.Second, true},
		{"half a preface", "upstream-connect", preface[:5], silence, 0, time.Second, true},
		{"half a frame", "upstream-reset", preface, once(short[:len(short)/2], silence), 4 * time.Second, 2 * time.Second, true},
		{"half an answer", "deadline", preface, once(wholeFrames(long, 40_000), pong), 4 * time.Second, 2 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1, service: ", timeout: 1m", limits: "timeouts: {body: 4s}"})
			p := &peer{says: c.says, reply: c.reply}
			m.impostor(p)
			k := m.post(10)
			m.do(k)
			m.finish(k)
			if k.code != c.code || k.took < c.least || k.took > c.least+c.slack {
				t.Errorf("status %d %s after %v, want %s after %v", k.status, k.code, k.took, c.code, c.least)
			}
			m.w.Run(100 * time.Millisecond)
			if p.ended != c.ends {
				t.Errorf("link closed: %t, want %t", p.ended, c.ends)
			}
		})
	}
}

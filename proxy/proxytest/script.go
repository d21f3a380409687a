package proxytest

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
)

// DialAndSend opens a connection to addr that sends b.
func (m *Mesh) DialAndSend(addr, b string) *Peer {
	p := &Peer{Says: []byte(b)}
	m.Clients.Do(func() { m.Clients.Dial(addr, time.Second, p) })
	return p
}

// RunUntil runs the world until cond holds, for a minute at most.
func (m *Mesh) RunUntil(what string, cond func() bool) {
	m.T.Helper()
	if !m.W.RunUntil(cond, time.Minute) {
		m.T.Fatalf("a minute has passed without %s", what)
	}
}

// RunUntilClosed runs the world until p's connection is closed. It returns the bytes that p
// has received.
func (m *Mesh) RunUntilClosed(p *Peer) string {
	m.T.Helper()
	m.RunUntil("the end of a connection", func() bool { return p.Ended })
	return string(p.Heard)
}

// RespondWith makes application i send says after each request. It returns its latest
// connection.
func (m *Mesh) RespondWith(i int, says string) **Peer {
	return m.RespondWithFunc(i, func() string { return says })
}

// RespondWithFunc makes application i send the result of says after each request. It
// returns its latest connection.
func (m *Mesh) RespondWithFunc(i int, says func() string) **Peer {
	a := m.Apps[i]
	a.Stop()
	latest := new(*Peer)
	a.Stop = m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		*latest = &Peer{Reply: func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
				return nil
			}
			return []byte(says())
		}}
		return *latest
	})
	return latest
}

// LinkResponder puts a linkResponder in the place of the first provider's sidecar.
func (m *Mesh) LinkResponder() *linkResponder {
	m.Nodes[1].Stop[0]()
	a := &linkResponder{m: m, w: link.NewWriter()}
	a.w.Preface(link.Acceptor, link.Settings{})
	a.w.Open(1, link.Settings{Window: 1}) // it sends a frame of DATA: Send makes the others
	a.Says = a.w.Append(nil, 1<<20)
	m.W.Net.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver { return a })
	return a
}

// RespondOverLink replaces the first provider's sidecar by one that responds with resp to
// the first request of each link. The path of the request must contain /s.
func (m *Mesh) RespondOverLink(resp *protocol.Response) {
	m.Nodes[1].Stop[0]()
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{Features: link.FeatureStreams})
	preface := w.Append(nil, 1<<20)
	w.Response(1, resp, protocol.CodecHTTP, nil)
	says := w.Append(nil, 1<<20)
	m.W.Net.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver {
		asked := false
		return &Peer{Says: preface, Reply: func(heard []byte) []byte {
			if asked || !bytes.Contains(heard, []byte("/s")) {
				return nil
			}
			asked = true
			return says
		}}
	})
}

// ReplaceProvider puts p in the place of the first provider's sidecar.
func (m *Mesh) ReplaceProvider(p *Peer) {
	m.Nodes[1].Stop[0]()
	m.W.Net.Listen("10.0.1.1:15006", m.W.Loop("10.0.1.1-raw"), func() loop.Receiver { return p })
}

// DialIngress connects p to the first provider's link listener.
func (m *Mesh) DialIngress(p *Peer) {
	m.Clients.Do(func() { m.Clients.Dial("10.0.1.1:15006", time.Second, p) })
}

// DialLink opens a link to the first provider, and returns what writes the frames of its peer.
func (m *Mesh) DialLink() (*link.Writer, *Peer) {
	m.T.Helper()
	w := link.NewWriter()
	w.Preface(link.Dialer, link.Settings{})
	w.Open(1, link.Settings{})
	p := &Peer{Says: w.Append(nil, 1<<20)}
	m.DialIngress(p)
	m.RunUntil("a link", func() bool { return p.Conn != nil })
	return w, p
}

// CheckClosesAfter runs the world until p's connection is closed, and checks that this
// takes at least the time least and at most slack longer.
func (m *Mesh) CheckClosesAfter(p *Peer, least, slack time.Duration) {
	m.T.Helper()
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	began := m.W.Now()
	m.W.RunUntil(func() bool { return p.Ended }, least+slack+time.Minute)
	if took := m.W.Now() - began; !p.Ended || took < least || took > least+slack {
		m.T.Errorf("closed %t after %v, want closed after %v to %v", p.Ended, took, least, least+slack)
	}
}

package proxytest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
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

// CheckResponseCase makes the application respond with a case, and checks the responses
// that its callers get.
func (m *Mesh) CheckResponseCase(c *corpus.Case, gap time.Duration) error {
	m.Apps[0].Stop()
	h := &caseResponder{on: m.W.Loop(m.Apps[0].Host + "-hostile"), c: c, gap: gap}
	m.W.Listen(m.Apps[0].Addr, h.on, h.accept)
	p := &Peer{Says: fmt.Appendf(nil, "%s /case HTTP/1.1\r\nHost: h\r\n\r\n", c.Method)}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(time.Minute) // past the deadline and the last byte of the case
	due := []corpus.Answer{c.Answer()}
	for i := range 3 {
		on := p
		if i == 2 {
			on = &Peer{}
			m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, on) })
			m.W.Run(10 * time.Millisecond)
			due = nil
		}
		target := fmt.Sprintf("/next%d", i)
		m.Clients.Do(func() { on.Conn.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)) })
		m.W.Run(time.Second)
		due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: target})
		if err := corpus.CheckAnswers(on.Heard, due); err != nil {
			return err
		}
		if bytes.Contains(on.Heard, []byte("smuggled")) {
			return errors.New("the caller got a hidden response")
		}
	}
	return nil
}

// CheckRequestCase sends a case to the consumer, and checks the responses and the requests
// that the application gets.
func (m *Mesh) CheckRequestCase(c *corpus.Case, gap time.Duration) error {
	r := &recorder{}
	m.Apps[0].Stop()
	m.W.Listen(m.Apps[0].Addr, m.W.Loop(m.Apps[0].Host+"-recorder"), r.accept)
	p := &Peer{}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(10 * time.Millisecond)
	said := c.Bytes()
	m.Clients.Do(func() { Feed(m.Clients, p.Conn, said, gap, func() {}) })
	m.W.Run(time.Duration(len(said))*gap + time.Second)

	due := c.Answers()
	if err := corpus.CheckAnswers(p.Heard, due); err != nil {
		return err
	}
	if closes := !c.Open() && len(c.Of(corpus.Incomplete)) == 0; p.Ended != closes {
		return fmt.Errorf("connection closed: %v", p.Ended)
	}
	if !c.Open() {
		m.Clients.Do(func() { p.Conn.Close() })
		p = &Peer{}
		m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
		m.W.Run(10 * time.Millisecond)
		due = nil
	}
	m.Clients.Do(func() { p.Conn.Write([]byte(nextRequest)) })
	m.W.Run(time.Second)
	forwarded := append(c.Forwarded(), NextMessage)
	due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: corpus.Numbered(len(forwarded))})
	return errors.Join(corpus.CheckAnswers(p.Heard, due), r.Check(forwarded))
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
	a.Stop = m.W.Listen(a.Addr, a.Loop, func() loop.Receiver {
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
	m.W.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver { return a })
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
	m.W.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver {
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
	m.W.Listen("10.0.1.1:15006", m.W.Loop("10.0.1.1-raw"), func() loop.Receiver { return p })
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

package proxy_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/sim"
)

// carrier is a proxy.Streams that keeps what it is given.
type carrier struct {
	sockets  []proxy.Socket
	requests []*proxy.StreamRequest
	answers  []*proxy.StreamAnswer
	parked   []*proxy.StreamSource
	accepted []*proxy.StreamAccept
	passed   []passage
	full     bool // nothing more can be parked
}

func (c *carrier) Request(client proxy.Socket, r *proxy.StreamRequest) {
	c.sockets, c.requests = append(c.sockets, client), append(c.requests, r)
}

func (c *carrier) Answer(client proxy.Socket, a *proxy.StreamAnswer) {
	c.sockets, c.answers = append(c.sockets, client), append(c.answers, a)
}

func (c *carrier) Pass(listener string, client proxy.Socket, to netip.AddrPort, first []byte) {
	c.sockets, c.passed = append(c.sockets, client), append(c.passed, passage{listener, to.String(), string(first)})
}

// passage is what Pass was told.
type passage struct{ listener, to, first string }

func (c *carrier) Park(src *proxy.StreamSource) (token link.Token, ok bool) {
	if c.full {
		return token, false
	}
	c.parked = append(c.parked, src)
	token[0] = byte(len(c.parked))
	return token, true
}

func (c *carrier) Accept(peer proxy.Socket, a *proxy.StreamAccept) {
	c.sockets, c.accepted = append(c.sockets, peer), append(c.accepted, a)
}

// close gives up all that the carrier was given.
func (c *carrier) close() {
	for _, s := range c.sockets {
		_ = s.Close()
	}
	for _, a := range c.answers {
		a.Source.Close()
	}
	for _, src := range c.parked {
		src.Close()
	}
	*c = carrier{}
}

// newStreamMesh is newMesh with a carrier on each node.
func newStreamMesh(t *testing.T, o meshOptions) (m *mesh, consumer, provider *carrier) {
	t.Helper()
	consumer, provider = &carrier{}, &carrier{}
	if o.match == "" {
		o.match = "match: {method: [CONNECT, GET, HEAD, POST, PUT]}, "
	}
	o.nodes = func(m *mesh) {
		m.w.Options.Sockets = !o.noSockets
		for _, n := range m.nodes {
			c := provider
			if n == m.consumer {
				c = consumer
			}
			n.proc.SetStreams(c)
		}
	}
	m = newMesh(t, o)
	return m, consumer, provider
}

// settledStreams ends all that the carriers have, and checks that nothing is left.
func settledStreams(m *mesh, carriers ...*carrier) {
	m.t.Helper()
	for _, c := range carriers {
		c.close()
	}
	m.settled()
	for _, n := range m.nodes {
		for service := range n.cfg.Services {
			if open := n.stats(service).StreamsOpen; open != 0 {
				m.t.Errorf("%s: %d streams open at %s with nothing left", n.host, open, service)
			}
		}
	}
}

// speak opens a connection to addr that says b.
func (m *mesh) speak(addr, b string) *peer {
	p := &peer{says: []byte(b)}
	m.clients.Do(func() { m.clients.Dial(addr, time.Second, p) })
	return p
}

// until runs the world until cond holds.
func (m *mesh) until(what string, cond func() bool) {
	m.t.Helper()
	if !m.w.RunUntil(cond, time.Minute) {
		m.t.Fatalf("a minute has passed without %s", what)
	}
}

// wait runs the world until p's connection is closed.
func (m *mesh) wait(p *peer) string {
	m.t.Helper()
	m.until("the end of a connection", func() bool { return p.ended })
	return string(p.heard)
}

// drained is all that has arrived at s.
func drained(t *testing.T, s proxy.Socket) []byte {
	t.Helper()
	var all []byte
	b := make([]byte, 64<<10)
	for {
		n, err := s.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			if !errors.Is(err, sim.ErrWouldBlock) {
				t.Errorf("reading a socket: %v", err)
			}
			return all
		}
	}
}

// headOf decodes the response that b starts with.
func headOf(t *testing.T, b []byte) (resp protocol.Response, h http1.Head, rest []byte) {
	t.Helper()
	n, err := http1.DecodeResponse(b, false, &resp, &h, &http1.Limits{Header: 64 << 10, Headers: 128, Message: http1.NoLimit})
	if err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return resp, h, b[n:]
}

// refusedWith checks that b is one response with the code, the last of its
// connection.
func refusedWith(t *testing.T, b []byte, status int, code string) {
	t.Helper()
	resp, h, _ := headOf(t, b)
	if got := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != status || got != code || h.KeepAlive {
		t.Errorf("status %d %s, keep-alive %t; want %d %s and a close", resp.Status, got, h.KeepAlive, status, code)
	}
}

// whole is the body that comes of what a stream request brought and what has
// arrived at its socket.
func whole(t *testing.T, r *proxy.StreamRequest, more []byte) []byte {
	t.Helper()
	in := append(bytes.Clone(r.Rest), more...)
	if _, _, err := r.Body.Decode(in, r.Buffer); err != nil {
		t.Errorf("the body of a stream: %v", err)
	}
	return r.Buffer.B[:r.Body.Length()]
}

// report is what the node's only loop tells of itself.
func (n *node) report() (r proxy.WorkerReport) {
	n.loop.Do(func() { r = n.proc.Workers()[0].Report() })
	return r
}

package proxytest

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Carrier is a downstream.Streams that keeps what it is given.
type Carrier struct {
	Sockets  []loop.Socket
	Requests []*downstream.StreamRequest
	Answers  []*downstream.StreamAnswer
	Parked   []*exchange.StreamSource
	Accepted []*downstream.StreamAccept
	Passed   []passage
	Full     bool // nothing more can be parked
}

// passage is what Pass was told.
type passage struct{ listener, to, first string }

// NewStreamMesh is NewMesh with a carrier on each node.
func NewStreamMesh(t *testing.T, o MeshOptions) (m *Mesh, consumer, provider *Carrier) {
	t.Helper()
	consumer, provider = &Carrier{}, &Carrier{}
	if o.Match == "" {
		o.Match = "match: {method: [CONNECT, GET, HEAD, POST, PUT]}, "
	}
	o.nodes = func(m *Mesh) {
		m.W.Options.Sockets = !o.NoSockets
		for _, n := range m.Nodes {
			c := provider
			if n == m.Consumer {
				c = consumer
			}
			n.Proc.SetStreams(c)
		}
	}
	m = NewMesh(t, o)
	return m, consumer, provider
}

// SettledStreams ends all that the carriers have, and checks that nothing is left.
func SettledStreams(m *Mesh, carriers ...*Carrier) {
	m.T.Helper()
	for _, c := range carriers {
		c.close()
	}
	m.Settled()
	for _, n := range m.Nodes {
		for service := range n.Cfg.Services {
			if open := n.Stats(service).StreamsOpen; open != 0 {
				m.T.Errorf("%s: %d streams open at %s with nothing left", n.Host, open, service)
			}
		}
	}
}

// Drained is all that has arrived at s.
func Drained(t *testing.T, s loop.Socket) []byte {
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

// HeadOf decodes the response that b starts with.
func HeadOf(t *testing.T, b []byte) (resp protocol.Response, h http1.Head, rest []byte) {
	t.Helper()
	n, err := http1.DecodeResponse(b, false, &resp, &h, &protocol.Limits{Header: 64 << 10, Headers: 128, Message: protocol.NoLimit})
	if err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return resp, h, b[n:]
}

// RefusedWith checks that b is one response with the code, the last of its
// connection.
func RefusedWith(t *testing.T, b []byte, status int, code string) {
	t.Helper()
	resp, h, _ := HeadOf(t, b)
	if got := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != status || got != code || h.KeepAlive {
		t.Errorf("status %d %s, keep-alive %t; want %d %s and a close", resp.Status, got, h.KeepAlive, status, code)
	}
}

// Whole is the body that comes of what a stream request brought and what has
// arrived at its socket.
func Whole(t *testing.T, r *downstream.StreamRequest, more []byte) []byte {
	t.Helper()
	in := append(bytes.Clone(r.Rest), more...)
	if _, _, err := r.Body.Decode(in, r.Buffer); err != nil {
		t.Errorf("the body of a stream: %v", err)
	}
	return r.Buffer.B[:r.Body.Length()]
}

func (c *Carrier) Request(client loop.Socket, r *downstream.StreamRequest) {
	c.Sockets, c.Requests = append(c.Sockets, client), append(c.Requests, r)
}

func (c *Carrier) Answer(client loop.Socket, a *downstream.StreamAnswer) {
	c.Sockets, c.Answers = append(c.Sockets, client), append(c.Answers, a)
}

func (c *Carrier) Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte) {
	c.Sockets, c.Passed = append(c.Sockets, client), append(c.Passed, passage{listener, to.String(), string(first)})
}

func (c *Carrier) Park(src *exchange.StreamSource) (token link.Token, ok bool) {
	if c.Full {
		return token, false
	}
	c.Parked = append(c.Parked, src)
	token[0] = byte(len(c.Parked))
	return token, true
}

func (c *Carrier) Accept(peer loop.Socket, a *downstream.StreamAccept) {
	c.Sockets, c.Accepted = append(c.Sockets, peer), append(c.Accepted, a)
}

// close gives up all that the carrier was given.
func (c *Carrier) close() {
	for _, s := range c.Sockets {
		_ = s.Close()
	}
	for _, a := range c.Answers {
		a.Source.Close()
	}
	for _, src := range c.Parked {
		src.Close()
	}
	*c = Carrier{}
}

// Passes checks that c was given one connection, with all of what its client said.
func (c *Carrier) Passes(t *testing.T, m *Mesh, said string) {
	t.Helper()
	m.Until("a connection to pass", func() bool { return len(c.Passed) == 1 })
	m.W.Run(time.Second)
	p := c.Passed[0]
	if got := p.first + string(Drained(t, c.Sockets[0])); p.listener != "egress" || p.to != Elsewhere || got != said {
		t.Errorf("passed from %s to %s:\n%.300q, want\n%.300q", p.listener, p.to, got, said)
	}
	if n := m.Consumer.Proc.Held(); n != 0 {
		t.Errorf("%d bytes are still counted for what has left", n)
	}
}

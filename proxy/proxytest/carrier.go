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
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Carrier is a downstream.Streams that keeps all streams for the test.
type Carrier struct {
	Sockets   []loop.Socket
	Requests  []*downstream.StreamRequest
	Responses []*downstream.StreamAnswer
	Parked    []*race.StreamSource
	Accepted  []*downstream.StreamAccept
	Passed    []passage
	Pipes     []*Pipe
	Full      bool // Park refuses
}

// passage has the arguments of a call of Pass.
type passage struct{ listener, to, first string }

// NewStreamMesh is NewMesh with a carrier on each node.
func NewStreamMesh(t *testing.T, o MeshOptions) (m *Mesh, consumer, provider *Carrier) {
	t.Helper()
	consumer, provider = &Carrier{}, &Carrier{}
	if o.Match == "" {
		o.Match = "match: {method: [CONNECT, GET, HEAD, POST, PUT]}"
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

// CheckStreamsSettled ends all streams of the carriers, and checks that no request, no
// message byte and no stream is left.
func CheckStreamsSettled(m *Mesh, carriers ...*Carrier) {
	m.T.Helper()
	for _, c := range carriers {
		c.close()
	}
	m.Settled()
	for _, n := range m.Nodes {
		for service := range n.Cfg.Services {
			if open := n.Stats(service).StreamsOpen; open != 0 {
				m.T.Errorf("%s: %d streams of %s are open after all have ended", n.Host, open, service)
			}
		}
	}
}

// ReadArrived returns all bytes that have arrived at s.
func ReadArrived(t *testing.T, s loop.Socket) []byte {
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

// DecodeHead decodes the head of the response that b starts with. rest is what follows.
func DecodeHead(t *testing.T, b []byte) (resp protocol.Response, h http1.Head, rest []byte) {
	t.Helper()
	n, err := http1.DecodeResponse(b, false, &resp, &h, &protocol.Limits{Header: 64 << 10, Headers: 128, Message: protocol.NoLimit})
	if err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return resp, h, b[n:]
}

// CheckRefusal checks that b is one response with the status and code, after which the
// connection closes.
func CheckRefusal(t *testing.T, b []byte, status int, code string) {
	t.Helper()
	resp, h, _ := DecodeHead(t, b)
	if got := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != status || got != code || h.KeepAlive {
		t.Errorf("status %d %s, keep-alive %t; want %d %s and a close", resp.Status, got, h.KeepAlive, status, code)
	}
}

// WholeBody returns the decoded body of a stream request. more are the bytes that have
// arrived at its socket.
func WholeBody(t *testing.T, r *downstream.StreamRequest, more []byte) []byte {
	t.Helper()
	in := append(bytes.Clone(r.Rest), more...)
	if _, _, err := r.Body.Decode(in, r.Buffer); err != nil {
		t.Errorf("the body of a stream: %v", err)
	}
	return r.Buffer.B[:r.Body.Length()]
}

// Request implements downstream.Streams.
func (c *Carrier) Request(client loop.Socket, r *downstream.StreamRequest) {
	c.Sockets, c.Requests = append(c.Sockets, client), append(c.Requests, r)
}

// Answer implements downstream.Streams.
func (c *Carrier) Answer(client loop.Socket, a *downstream.StreamAnswer) {
	c.Sockets, c.Responses = append(c.Sockets, client), append(c.Responses, a)
}

// Pass implements downstream.Streams.
func (c *Carrier) Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte) {
	c.Sockets, c.Passed = append(c.Sockets, client), append(c.Passed, passage{listener, to.String(), string(first)})
}

// Park implements downstream.Streams.
func (c *Carrier) Park(src *race.StreamSource, _ shard.Client) (token link.Token, ok bool) {
	if c.Full {
		return token, false
	}
	c.Parked = append(c.Parked, src)
	token[0] = byte(len(c.Parked))
	return token, true
}

// Accept implements downstream.Streams.
func (c *Carrier) Accept(peer loop.Socket, a *downstream.StreamAccept) {
	c.Sockets, c.Accepted = append(c.Sockets, peer), append(c.Accepted, a)
}

// close ends all streams of the carrier.
func (c *Carrier) close() {
	for _, s := range c.Sockets {
		_ = s.Close()
	}
	for _, a := range c.Responses {
		a.Source.Close()
	}
	for _, src := range c.Parked {
		src.Close()
	}
	*c = Carrier{}
}

// CheckPassed checks that c got one redirected connection, with all bytes of its client.
func (c *Carrier) CheckPassed(t *testing.T, m *Mesh, said string) {
	t.Helper()
	m.RunUntil("a connection to pass", func() bool { return len(c.Passed) == 1 })
	m.W.Run(time.Second)
	p := c.Passed[0]
	if got := p.first + string(ReadArrived(t, c.Sockets[0])); p.listener != "egress" || p.to != OriginalDst || got != said {
		t.Errorf("passed from %s to %s:\n%.300q, want\n%.300q", p.listener, p.to, got, said)
	}
	if n := m.Consumer.Proc.Held(); n != 0 {
		t.Errorf("%d bytes are still counted for a connection that has left its loop", n)
	}
}

// NewPipe implements downstream.Streams.
func (c *Carrier) NewPipe(l loop.Loop, remote string, ready func()) (loop.Pipe, loop.Socket) {
	p := &Pipe{Loop: l, Remote: remote, ready: ready}
	c.Pipes = append(c.Pipes, p)
	return p, PipeSocket{p}
}

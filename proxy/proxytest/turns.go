package proxytest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/registry"
)

// Turns is a client of a sidecar on the null driver. The test speaks for the client and for the application, says what the
// connection of the client holds, and ends the turns of the loop.
type Turns struct {
	Mesh     *AllocMesh
	Proc     *proxy.Process
	Loop     *NullLoop
	Conn     *NullConn     // the sidecar's end of the latest connection
	Receiver loop.Receiver // of Conn
	Streams  Carrier       // for Proc.SetStreams
	Apps     []*Peer       // the connections to the application
	Detached int           // connections that have left the loop
	Input    bool          // what HasInput of the connections returns
	Unread   bool          // what is written from now on stays in Held of its connection

	OnWrite func(b []byte) // called for what is written, and for each part of it; nil means nothing

	accept func() (*NullLoop, loop.Receiver)
	to     netip.AddrPort // the original destination; the zero value means that the connection was not redirected
	lost   bool           // OnClose of Receiver was called
}

// turnsConn is the sidecar's end of a connection that can leave its loop.
type turnsConn struct {
	*NullConn
	of *Turns
}

func (c turnsConn) Detach() (loop.Socket, error) {
	switch {
	case c.Closed:
		return nil, loop.ErrDetachClosed
	case c.Held > 0:
		return nil, loop.ErrDetachBuffered
	}
	c.of.Detached++
	return PipeSocket{&Pipe{Loop: c.of.Loop}}, nil
}

func (c turnsConn) HasInput() bool { return c.of.Input }

func (c turnsConn) Write(b []byte) {
	c.wrote(b)
	c.NullConn.Write(b)
}

func (c turnsConn) WriteParts(parts [][]byte) {
	for _, b := range parts {
		c.wrote(b)
	}
	c.NullConn.WriteParts(parts)
}

func (c turnsConn) wrote(b []byte) {
	if c.of.Unread {
		c.Held += len(b)
	}
	if c.of.OnWrite != nil {
		c.of.OnWrite(b)
	}
}

func (c turnsConn) OriginalDst() netip.AddrPort { return c.of.to }

func (c turnsConn) SetReceiver(r loop.Receiver) {
	c.of.Receiver = r
	c.NullConn.SetReceiver(r)
}

// NewTurns returns a client without a connection: Open opens the first. to is the original destination of its connections, the zero
// value if they were not redirected. top is YAML at the top level of the sidecar's configuration, which may replace its routes.
func NewTurns(t testing.TB, top string, to netip.AddrPort) *Turns {
	t.Helper()
	const app = "10.0.0.1:8080"
	m := &AllocMesh{T: t, Net: NewNullNet()}
	m.Net.Step = time.Microsecond
	s := &Turns{Mesh: m, to: to}
	if !strings.Contains(top, "routes: ") {
		top += "\nroutes: [{match: {method: [CONNECT]}, service: compute}, {match: {host: compute, path: /cached}, service: compute, cache: {ttl: 1h}}, {match: {host: compute}, service: compute}]"
	}
	s.Proc, s.accept = m.Sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: http, timeout: 1h}}
` + top)
	appLoop := m.Net.Loop()
	m.Net.Accept[app] = func() (*NullLoop, loop.Receiver) {
		p := &Peer{}
		s.Apps = append(s.Apps, p)
		return appLoop, p
	}
	s.Proc.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app, Weight: 1}}))
	return s
}

// Open opens a connection, in place of the one before.
func (s *Turns) Open() {
	s.Loop, s.Receiver = s.accept()
	s.Conn, _ = s.Mesh.Net.Connect(s.Loop, s.Receiver, nil, nil)
	s.Mesh.Clients = []*NullConn{s.Conn}
	s.lost = false
	s.Receiver.OnOpen(turnsConn{s.Conn, s})
	s.Mesh.Net.Pump()
}

// Lose ends the latest connection with err, if it has not been lost yet.
func (s *Turns) Lose(err error) {
	if !s.lost {
		s.lost, s.Conn.Closed = true, true
		s.Receiver.OnClose(err)
	}
}

// Respond delivers bytes of the application, on its latest connection, to the sidecar.
func (s *Turns) Respond(says string) {
	s.Apps[len(s.Apps)-1].Conn.(*NullConn).Peer.Deliver([]byte(says))
}

// Answer is Respond, and ends the turn.
func (s *Turns) Answer(says string) {
	s.Respond(says)
	s.Mesh.Net.Pump()
}

// Say delivers bytes of the client, and ends the turn.
func (s *Turns) Say(says string) {
	s.Conn.Deliver([]byte(says))
	s.Mesh.Net.Pump()
}

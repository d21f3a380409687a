package http2_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// pingCounter is an application's connection that notes when it gets a PING.
type pingCounter struct {
	*proxytest.HTTP2Conn
	m     *proxytest.Mesh
	heard []byte
	at    []time.Duration
}

func (p *pingCounter) OnData(b []byte) {
	p.heard = append(p.heard, b...)
	pings := 0
	proxytest.EachFrame(p.heard[min(len(p.heard), len(http2.Preface)):], func(f []byte) {
		if f[3] == framePing && f[4]&flagAck == 0 {
			pings++
		}
	})
	if pings > len(p.at) {
		p.at = append(p.at, p.m.W.Now().Round(time.Second))
	}
	p.HTTP2Conn.OnData(b)
}

// TestPings: a connection with a request sends a PING after ten seconds. While nothing but responses to PINGs comes, others follow
// after ever longer pauses, as an endpoint may take many for an attack. Any part of a response makes the pauses short again, and so
// does a time without requests.
func TestPings(t *testing.T) {
	const s = time.Second
	begins := func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: -1,
			Headers: []protocol.Header{field("x-nonce", string(protocol.Find(c.Request.Headers, "x-nonce")))}})
	}
	never := func(*proxytest.HTTP2Conn, *http2.Stream) {}
	for _, c := range []struct {
		name   string
		before func(c *proxytest.HTTP2Conn, st *http2.Stream) // with the request
		late   func(c *proxytest.HTTP2Conn, st *http2.Stream) // after 15 seconds
		again  time.Duration                                  // when another request comes; 0 means never
		want   []time.Duration                                // the PINGs in 800 seconds
	}{
		{"silence", never, never, 0, []time.Duration{10 * s, 30 * s, 70 * s, 380 * s, 690 * s}},
		{"an interim response", never, func(c *proxytest.HTTP2Conn, st *http2.Stream) { c.H2.Interim(st, &protocol.Response{Status: 103}) }, 0,
			[]time.Duration{10 * s, 30 * s, 50 * s, 90 * s, 400 * s, 710 * s}},
		{"a head", never, begins, 0, []time.Duration{10 * s, 30 * s, 50 * s, 90 * s, 400 * s, 710 * s}},
		{"a part of the body", begins, func(c *proxytest.HTTP2Conn, st *http2.Stream) { c.H2.Send(st, []byte("x")) }, 0,
			[]time.Duration{30 * s, 50 * s, 90 * s, 400 * s, 710 * s}},
		{"trailers, and another request", begins, func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.Finish(st, []protocol.Header{field("a", "b")})
		}, s, []time.Duration{30 * s, 50 * s, 90 * s, 400 * s, 710 * s}},
		{"the end", never, func(c *proxytest.HTTP2Conn, st *http2.Stream) { respond(c, st) }, 0, []time.Duration{10 * s}},
		{"the end, and another request", never, func(c *proxytest.HTTP2Conn, st *http2.Stream) { respond(c, st) }, 25 * s,
			[]time.Duration{10 * s, 30 * s, 50 * s, 90 * s, 400 * s, 710 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2",
				Service: "timeout: 1h, idle_timeout: 1h, retry: {on: []}"})
			a := startApps(m)[0]
			a.stop()
			var p *pingCounter
			m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
				p = &pingCounter{m: m, HTTP2Conn: proxytest.NewHTTP2Conn(0, func(conn *proxytest.HTTP2Conn, st *http2.Stream) {
					if a.calls++; a.calls > 1 {
						return
					}
					c.before(conn, st)
					a.of.Loop.After(15*s, &loop.Timer{Fire: func() {
						c.late(conn, st)
						conn.Flush()
					}})
				})}
				return p
			})
			client := m.Do(m.Post(10))
			if c.again > 0 {
				m.W.Run(c.again)
				client = m.Do(m.Post(10))
			}
			m.W.Run(800*s - c.again)
			if !slices.Equal(p.at, c.want) {
				t.Errorf("PINGs at %v, want %v", p.at, c.want)
			}
			client.Leave()
			m.Settled()
		})
	}
}

// TestPingUnanswered: a connection whose endpoint takes a PING and says nothing closes ten seconds later.
func TestPingUnanswered(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 100s, retry: {on: []}")
	a := apps[0]
	a.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
	call := m.Post(10)
	m.Do(call)
	if m.Finish(call); call.Code != "upstream-reset" || call.Took < 19*time.Second || call.Took > 21*time.Second {
		t.Errorf("status %d %s after %v, want a reset after 20 s", call.Status, call.Code, call.Took)
	}
	m.Settled()
}

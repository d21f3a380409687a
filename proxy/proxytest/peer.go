package proxytest

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Peer is the other end of a connection under test: it says what it is told to
// and keeps what it hears.
type Peer struct {
	Conn  loop.Conn
	Says  []byte                    // at once
	Reply func(heard []byte) []byte // to each arrival; may be nil
	Hangs bool                      // closes after the reply
	Heard []byte
	Ended bool
	Why   error // it ended
}

func (p *Peer) OnOpen(c loop.Conn) {
	p.Conn = c
	c.Write(p.Says)
}

func (p *Peer) OnData(b []byte) {
	p.Heard = append(p.Heard, b...)
	if p.Reply == nil {
		return
	}
	if out := p.Reply(p.Heard); out != nil {
		p.Conn.Write(out)
		if p.Hangs {
			p.Conn.Drain()
		}
	}
}

func (p *Peer) OnClose(why error) { p.Ended, p.Why = true, why }

// answerer is the accepting end of a link, by hand, in the place of the sidecar
// beside the only application.
type answerer struct {
	Peer
	m *Mesh
	w *link.Writer
}

// Begin has the first n requests answered with 1 MiB each, of which say sends.
func (a *answerer) Begin(n int) {
	a.m.Until("a link", func() bool { return a.Conn != nil })
	a.m.W.Run(10 * time.Millisecond)
	for id := range uint64(n) {
		a.w.Response(id+1, &protocol.Response{Status: 200, Body: make([]byte, 1<<20), DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
}

// Say sends n bytes, equal parts of all answers.
func (a *answerer) Say(n int) {
	var out []byte
	for len(out) < n {
		out = a.w.Append(out, 64<<10)
		a.w.Granted(64 << 10)
	}
	a.m.Nodes[1].Loop.Do(func() { a.Conn.Write(out) })
	a.m.W.Run(100 * time.Millisecond)
}

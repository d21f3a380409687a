package proxytest

import (
	"encoding/binary"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Peer is the other end of a connection under test. It sends fixed bytes and keeps the
// bytes that it receives.
type Peer struct {
	Conn             loop.Conn
	Says             []byte                    // sent on connect
	Reply            func(heard []byte) []byte // returns the bytes to send after each arrival; may be nil
	ClosesAfterReply bool                      // closes after the reply
	Heard            []byte
	Ended            bool
	CloseErr         error // the error of OnClose
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
		if p.ClosesAfterReply {
			p.Conn.Drain()
		}
	}
}

func (p *Peer) OnClose(why error) { p.Ended, p.CloseErr = true, why }

// linkResponder is the accepting end of a link that a test controls, in the place of the
// first provider's sidecar.
type linkResponder struct {
	Peer
	m      *Mesh
	w      *link.Writer
	queued int // responses
	last   int // id of the response that Send has sent a part of last
}

// QueueResponses queues responses of 1 MiB to the first n requests, for Send.
func (a *linkResponder) QueueResponses(n int) {
	a.m.RunUntil("a link", func() bool { return a.Conn != nil })
	a.m.W.Run(10 * time.Millisecond)
	for id := range uint64(n) {
		a.queued++
		a.w.Response(id+1, &protocol.Response{Status: 200, Body: make([]byte, 1<<20), DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
}

// GoAway takes no requests above last.
func (a *linkResponder) GoAway(last uint64) {
	a.w.GoAway(last, link.Draining)
	a.m.Nodes[1].Loop.Do(func() { a.Conn.Write(a.w.Append(nil, 1<<20)) })
	a.m.W.Run(10 * time.Millisecond)
}

// Send sends n bytes, in equal parts of all responses.
func (a *linkResponder) Send(n int) {
	out := a.w.Append(nil, 1<<20) // the heads
	for len(out) < n {
		a.last = a.last%a.queued + 1
		out = AppendData(out, a.last, 16_000)
	}
	a.m.Nodes[1].Loop.Do(func() { a.Conn.Write(out) })
	a.m.W.Run(100 * time.Millisecond)
}

// AppendData appends frames of DATA with n bytes of the body of message id.
func AppendData(b []byte, id, n int) []byte {
	const dataFrame = 3
	for part := 0; n > 0; n -= part {
		part = min(n, 16_000)
		b = binary.AppendUvarint(append(b, dataFrame), uint64(id))
		b = append(binary.AppendUvarint(b, uint64(part)), make([]byte, part)...)
	}
	return b
}

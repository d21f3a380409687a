package http2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// owner counts its releases.
type owner struct {
	t        testing.TB
	released int
	size     int
}

func (o *owner) Buffered() int { return o.size }

func (o *owner) Release() {
	if o.released++; o.released > 1 {
		o.t.Error("an owner was released again")
	}
}

// message is what a peer received on one stream.
type message struct {
	req      protocol.Request
	res      protocol.Response
	buf      bytebufferpool.ByteBuffer
	body     []byte
	trailers []string
	interim  []string
	head     bool // OnRequest or OnResponse came
	end      bool
	oversize bool
	noRoom   bool
	sent     bool
	over     bool // no call may follow
	writable int
	reset    *Code
	why      *Error
}

// peer is one side of a connection: a Conn, and what its handler got.
type peer struct {
	t                  testing.TB
	c                  *Conn
	got                map[uint32]*message
	refuse, hold       bool // NewRequest and NewResponse return nil; the body's window is not given back
	settings, barriers int
	full               bool // no head may grow
	agreed             int  // although full, so many times
	asked              []int
	goAway             []string

	onRequest  func(st *Stream, end bool) // called at the end of a request
	onWritable func(st *Stream)
}

func newPeer(t testing.TB, client bool, o Options) *peer {
	if o.Limits == (protocol.Limits{}) {
		o.Limits = protocol.Limits{Header: 16 << 10, Headers: 100}
	}
	p := &peer{t: t, got: map[uint32]*message{}}
	p.c = newConn(client, &o, p)
	return p
}

func newServer(t testing.TB, o Options) *peer { return newPeer(t, false, o) }
func newClient(t testing.TB, o Options) *peer { return newPeer(t, true, o) }

// handler takes what either side receives.
type handler interface {
	RequestHandler
	ResponseHandler
}

func newConn(client bool, o *Options, h handler) *Conn {
	c := &Conn{}
	if client {
		c.InitClient(o, h)
	} else {
		c.InitServer(o, h)
	}
	return c
}

func (p *peer) of(st *Stream) *message {
	m := p.got[st.ID()]
	if st.ID() == 0 {
		p.t.Error("a call with a stream that is over")
	}
	if m == nil {
		m = &message{}
		p.got[st.ID()] = m
	}
	if m.over {
		p.t.Errorf("a call with stream %d, which is over", st.ID())
	}
	return m
}

func (p *peer) NewRequest(st *Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	if p.refuse {
		return nil, nil
	}
	m := p.of(st)
	return &m.req, &m.buf
}

func (p *peer) OnRequest(st *Stream, end bool) { p.head(st, end) }

func (p *peer) head(st *Stream, end bool) {
	m := p.of(st)
	if m.head {
		p.t.Errorf("stream %d has two heads", st.ID())
	}
	m.head = true
	if end {
		p.ended(st, m)
	}
}

func (p *peer) ended(st *Stream, m *message) {
	if m.end {
		p.t.Errorf("stream %d has ended twice", st.ID())
	}
	m.end = true
	if m.sent {
		m.over = true
	}
	if p.onRequest != nil {
		p.onRequest(st, true)
	}
}

func (p *peer) OnOversize(st *Stream) { p.of(st).oversize = true }

func (p *peer) MayGrow(_ *Stream, n int) bool {
	p.asked = append(p.asked, n)
	return !p.full || len(p.asked) <= p.agreed
}

func (p *peer) OnNoRoom(st *Stream) { p.of(st).noRoom = true }

func (p *peer) NewResponse(st *Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	if p.refuse {
		return nil, nil
	}
	m := p.of(st)
	return &m.res, &m.buf
}

func (p *peer) OnInterim(st *Stream) {
	m := p.of(st)
	m.interim = append(m.interim, fmt.Sprint(m.res.Status, lines(m.res.Headers)))
}

func (p *peer) OnResponse(st *Stream, end bool) { p.head(st, end) }

func (p *peer) OnData(st *Stream, b []byte, end bool) {
	m := p.of(st)
	if len(b) == 0 && !end {
		p.t.Errorf("stream %d gets nothing", st.ID())
	}
	m.body = append(m.body, b...)
	if !end && !p.hold {
		p.c.Consumed(st, len(b))
	}
	if end {
		p.ended(st, m)
	}
}

func (p *peer) OnTrailers(st *Stream, hs []protocol.Header) {
	m := p.of(st)
	m.trailers = append(m.trailers, lines(hs)...)
	p.ended(st, m)
}

func (p *peer) OnReset(st *Stream, code Code, why *Error) {
	m := p.of(st)
	m.reset, m.why, m.over = &code, why, true
}

func (p *peer) OnWritable(st *Stream) {
	p.of(st).writable++
	if p.onWritable != nil {
		p.onWritable(st)
	}
}

func (p *peer) OnSent(st *Stream) {
	m := p.of(st)
	if m.sent {
		p.t.Errorf("stream %d was sent twice", st.ID())
	}
	if m.sent = true; m.end {
		m.over = true
	}
}

func (p *peer) OnSettings() { p.settings++ }
func (p *peer) OnGoAway(last uint32, code Code) {
	p.goAway = append(p.goAway, fmt.Sprint(last, " ", uint32(code)))
}
func (p *peer) OnBarrier() { p.barriers++ }

// lines returns headers as "name: value" lines. A line that begins with ! is never indexed.
func lines(hs []protocol.Header) (all []string) {
	for _, h := range hs {
		line := h.String()
		if h.NeverIndexed {
			line = "!" + line
		}
		all = append(all, line)
	}
	return all
}

// fields returns the headers of lines.
func fields(lines ...string) (hs []protocol.Header) {
	for _, l := range lines {
		l, never := strings.CutPrefix(l, "!")
		name, value, _ := strings.Cut(l, ": ")
		hs = append(hs, protocol.Header{Name: []byte(name), Value: []byte(value), NeverIndexed: never})
	}
	return hs
}

// pair is a client and a server.
type pair struct {
	client, server *peer
}

func newPair(t testing.TB, client, server Options) *pair {
	return &pair{newClient(t, client), newServer(t, server)}
}

// run exchanges frames until both sides have nothing to send.
func (p *pair) run() error {
	for moved := true; moved; {
		moved = false
		for _, way := range [2][2]*peer{{p.client, p.server}, {p.server, p.client}} {
			for way[0].c.Ready() {
				out := bytes.Clone(way[0].c.Output(32 << 10))
				if len(out) == 0 {
					continue
				}
				moved = true
				if err := way[1].c.Feed(out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

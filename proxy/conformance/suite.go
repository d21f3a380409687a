package conformance

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// soon is the delay of events that must follow those that a test checks, and long is a delay
// that no test waits for. Neither decides whether a test passes.
const (
	soon = 5 * time.Millisecond
	long = time.Hour
)

// suite is a harness with the checks that every case makes: all callbacks go
// through call.
type suite struct {
	Harness
	t      *testing.T
	inside string // the callback that is running; of the loop, as all below
}

// call runs one callback and checks that it is not inside another.
func (s *suite) call(what string, f func()) {
	if s.inside != "" {
		s.t.Errorf("%s called inside %s: callbacks never nest", what, s.inside)
	}
	outer := s.inside
	s.inside = what
	f()
	s.inside = outer
}

// do runs f on the loop as a posted function.
func (s *suite) do(f func(l loop.Loop)) {
	s.t.Helper()
	s.Do(func(l loop.Loop) { s.call("Post", func() { f(l) }) })
}

// timer makes a timer that fires f.
func (s *suite) timer(f func()) *loop.Timer {
	return &loop.Timer{Fire: func() { s.call("Timer.Fire", f) }}
}

// flush makes a flush that does f.
func (s *suite) flush(f func()) *loop.Flush {
	return &loop.Flush{Do: func() { s.call("Flush.Do", f) }}
}

// probe is a Receiver that checks the rules of Receiver and keeps what it saw. Its
// hooks may be nil. Everything in it belongs to the loop.
type probe struct {
	s      *suite
	name   string
	conn   loop.Conn
	opened bool
	ended  bool // it called Close or Drain
	closed bool // OnClose was called
	heard  bool // OnEnd was called
	err    error
	got    []byte

	onOpen  func()
	onData  func(b []byte)
	onEnd   func() (stays bool) // nil means false
	onClose func()
}

func (s *suite) probe(name string) *probe { return &probe{s: s, name: name} }

// OnOpen implements loop.Receiver.
func (p *probe) OnOpen(c loop.Conn) {
	p.s.call(p.name+".OnOpen", func() {
		if p.opened || p.closed {
			p.s.t.Errorf("%s: OnOpen after open=%t close=%t", p.name, p.opened, p.closed)
		}
		p.opened, p.conn = true, c
		if p.onOpen != nil {
			p.onOpen()
		}
	})
}

// OnData implements loop.Receiver.
func (p *probe) OnData(b []byte) {
	p.s.call(p.name+".OnData", func() {
		switch {
		case !p.opened:
			p.s.t.Errorf("%s: OnData before OnOpen", p.name)
		case p.closed, p.heard:
			p.s.t.Errorf("%s: OnData after OnClose or OnEnd", p.name)
		case p.ended:
			p.s.t.Errorf("%s: OnData after Close or Drain", p.name)
		case len(b) == 0:
			p.s.t.Errorf("%s: OnData is empty", p.name)
		}
		p.got = append(p.got, b...)
		if p.onData != nil {
			p.onData(b)
		}
	})
}

// OnEnd implements loop.HalfCloser.
func (p *probe) OnEnd() (stays bool) {
	p.s.call(p.name+".OnEnd", func() {
		if !p.opened || p.closed || p.ended || p.heard {
			p.s.t.Errorf("%s: OnEnd after open=%t close=%t, its own end=%t, OnEnd=%t", p.name, p.opened, p.closed, p.ended, p.heard)
		}
		p.heard = true
		stays = p.onEnd != nil && p.onEnd()
	})
	return stays
}

// OnClose implements loop.Receiver.
func (p *probe) OnClose(err error) {
	p.s.call(p.name+".OnClose", func() {
		if p.closed {
			p.s.t.Errorf("%s: OnClose twice", p.name)
		}
		if p.ended && err != nil {
			p.s.t.Errorf("%s: OnClose(%v) after its own Close or Drain, want nil", p.name, err)
		}
		p.closed, p.err = true, err
		if p.onClose != nil {
			p.onClose()
		}
	})
}

// takeOver makes p the open stream of the connection of before, without a call of OnOpen.
func (p *probe) takeOver(before *probe) { p.opened, p.conn = true, before.conn }

func (p *probe) close() {
	p.ended = true
	p.conn.Close()
	if p.closed {
		p.s.t.Errorf("%s: OnClose came within Close", p.name)
	}
}

func (p *probe) drain() {
	p.ended = true
	p.conn.Drain()
	if p.closed {
		p.s.t.Errorf("%s: OnClose came within Drain", p.name)
	}
}

func (p *probe) finish() {
	p.ended = true
	p.conn.Finish()
	if p.closed {
		p.s.t.Errorf("%s: OnClose came within Finish", p.name)
	}
}

func (p *probe) isOpen() bool   { return p.opened }
func (p *probe) isClosed() bool { return p.closed }

// echo makes p send back all input.
func (p *probe) echo() *probe {
	p.onData = func(b []byte) { p.conn.Write(b) }
	return p
}

// listen accepts connections with the given streams, in order. One more connection is an
// error.
func (s *suite) listen(servers ...*probe) (addr string) {
	next := 0
	return s.Listen(func() loop.Receiver {
		if next == len(servers) {
			s.t.Errorf("more connections accepted than the %d dialled", len(servers))
			return s.probe("unexpected")
		}
		next++
		return servers[next-1]
	})
}

// dial connects client on the loop. The caller waits for the outcome.
func (s *suite) dial(addr string, client *probe) {
	s.t.Helper()
	s.do(func(l loop.Loop) { l.Dial(addr, long, client) })
}

// pair connects client to server, both on the loop under test.
func (s *suite) pair(client, server *probe) {
	s.t.Helper()
	s.dial(s.listen(server), client)
	s.Wait("both ends to be open", func() bool { return client.opened && server.opened })
}

// peer connects a Peer to server.
func (s *suite) peer(server *probe) Peer {
	s.t.Helper()
	p := s.Connect(s.listen(server))
	s.Wait("the connection to be open", server.isOpen)
	return p
}

// waitGot waits until p has read want and the end err.
func (s *suite) waitGot(p Peer, want []byte, wantErr error) {
	s.t.Helper()
	var got []byte
	var err error
	s.Wait("the peer to see the end", func() bool {
		got, err = p.Got()
		return err != nil
	})
	if err != wantErr {
		s.t.Errorf("the peer's read ended with %v, want %v", err, wantErr)
	}
	s.same("the peer", got, want)
}

// same compares byte streams.
func (s *suite) same(who string, got, want []byte) {
	s.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	n := min(len(got), len(want))
	for i := range n {
		if got[i] != want[i] {
			s.t.Errorf("%s got %d bytes, wrong from %d on; want %d", who, len(got), i, len(want))
			return
		}
	}
	s.t.Errorf("%s got %d bytes, want %d", who, len(got), len(want))
}

// settle waits until events in progress have surely arrived, so that a surplus callback is
// seen after it.
func (s *suite) settle() {
	s.t.Helper()
	done := false
	again := 3
	var t *loop.Timer
	var lp loop.Loop
	t = s.timer(func() {
		if again--; again == 0 {
			done = true
			return
		}
		lp.After(soon, t)
	})
	s.do(func(l loop.Loop) { lp = l; l.After(soon, t) })
	s.Wait("the loop to settle", func() bool { return done })
}

// pattern returns n bytes that depend on the position and the seed.
func pattern(seed byte, n int) []byte {
	b := make([]byte, n+7)
	x := uint64(seed) + 1
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.BigEndian.PutUint64(b[i:], x)
	}
	return b[:n:n]
}

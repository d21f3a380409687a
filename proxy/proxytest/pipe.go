package proxytest

import (
	"cmp"
	"errors"
	"io"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Pipe is a loop.Pipe without goroutines: a test has both ends. The Socket's calls never wait.
type Pipe struct {
	Loop   loop.Loop // nil means that nobody calls ready
	Remote string

	In     []byte // delivered and not read
	Out    []byte // written and not consumed
	Held   int    // by Charge
	Opened bool
	Ended  bool
	Closed error // of Close by the loop

	state loop.PipeState
	taken int
	ready func()
}

var errPipeReset = errors.New("reset by the peer")

// Open implements loop.Pipe.
func (p *Pipe) Open() { p.Opened = true }

// Deliver implements loop.Pipe.
func (p *Pipe) Deliver(b []byte) {
	if p.state >= loop.PipeClosed {
		p.taken += len(b)
		return
	}
	p.In = append(p.In, b...)
}

// End implements loop.Pipe.
func (p *Pipe) End() { p.Ended = true }

// Taken implements loop.Pipe.
func (p *Pipe) Taken() int {
	n := p.taken
	p.taken = 0
	return n
}

// Output implements loop.Pipe.
func (p *Pipe) Output() []byte { return p.Out }

// Consume implements loop.Pipe.
func (p *Pipe) Consume(n int) { p.Out = p.Out[n:] }

// Charge implements loop.Pipe.
func (p *Pipe) Charge(n int) { p.Held += n }

// State implements loop.Pipe.
func (p *Pipe) State() loop.PipeState { return p.state }

// Close implements loop.Pipe.
func (p *Pipe) Close(err error) { p.Closed, p.Out, p.Held = cmp.Or(err, errPipeReset), nil, 0 }

func (p *Pipe) become(s loop.PipeState) {
	p.state = max(p.state, s)
	p.notify()
}

func (p *Pipe) notify() {
	if p.Loop != nil {
		p.Loop.Post(func() {
			if p.Closed == nil {
				p.ready()
			}
		})
	}
}

// PipeSocket is the other end of a Pipe.
type PipeSocket struct{ *Pipe }

// Read returns sim.ErrWouldBlock where a goroutine would wait.
func (s PipeSocket) Read(b []byte) (int, error) {
	n := copy(b, s.In)
	switch {
	case n > 0:
		s.In = s.In[n:]
		s.taken += n
		s.notify()
		return n, nil
	case s.Ended:
		return 0, io.EOF
	}
	return 0, cmp.Or(s.Closed, sim.ErrWouldBlock)
}

// Write has no bound.
func (s PipeSocket) Write(b []byte) (int, error) {
	if s.Closed != nil {
		return 0, s.Closed
	}
	s.Out = append(s.Out, b...)
	s.notify()
	return len(b), nil
}

// CloseWrite implements loop.Socket.
func (s PipeSocket) CloseWrite() error { s.become(loop.PipeEnded); return nil }

// Close implements loop.Socket.
func (s PipeSocket) Close() error { s.become(loop.PipeClosed); return nil }

// Reset implements loop.Socket.
func (s PipeSocket) Reset() { s.Out = nil; s.become(loop.PipeReset) }

// Secure implements loop.Socket.
func (s PipeSocket) Secure() bool { return false }

// SetDeadline implements loop.Socket.
func (s PipeSocket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements loop.Socket.
func (s PipeSocket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements loop.Socket.
func (s PipeSocket) SetWriteDeadline(time.Time) error { return nil }

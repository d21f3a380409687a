package stream

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pair is the two ends of a stream, which it owns: the one that asked, down, and
// the one that answers, up, as soon as there is one.
type pair struct {
	srv  *Server
	down *end

	mu      sync.Mutex // guards up and severed
	up      *end
	severed bool

	at string // "ip:port" that was dialled last, by run

	torn    atomic.Bool   // the stream is to end in a reset
	waits   atomic.Bool   // for the head of an answer, which has a deadline: not idle
	settled atomic.Bool   // down has all that it gets
	heard   chan struct{} // closed when nobody reads down any more; nil: nobody began
}

// join makes up the other end, unless the stream was cut.
func (p *pair) join(up *end) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.severed {
		up.reset()
		return ErrClosed
	}
	p.up = up
	return nil
}

// cut ends the stream at once, with a reset at both ends.
func (p *pair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = true
	p.down.reset()
	if p.up != nil {
		p.up.reset()
	}
}

// isCut tells whether the stream was cut: what fails after that is no fault of
// the endpoint's.
func (p *pair) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed
}

// part closes the way up; an endpoint that is still being sent a request learns
// that there is no more by a reset.
func (p *pair) part(complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.up == nil:
	case complete:
		_ = p.up.Close()
	default:
		p.up.reset()
	}
}

// listen has down read from here on, by say while it has something to say, then
// for its end alone: nobody waits for the answer then, and the stream is cut.
func (p *pair) listen(say func()) {
	p.heard = make(chan struct{})
	p.srv.all.Go(func() {
		defer close(p.heard)
		say()
		_, _ = io.Copy(io.Discard, p.down)
		if !p.settled.Load() {
			p.cut()
		}
	})
}

// finish writes the last of an answer and closes so that it arrives: a close
// with unread input would be a reset, which can destroy it.
func (p *pair) finish(out []byte) {
	p.settled.Store(true)
	defer p.down.Close()
	_ = p.down.SetWriteDeadline(time.Now().Add(p.srv.config().Timeouts.Write))
	if _, err := p.down.Write(out); err == nil {
		_ = p.down.CloseWrite()
	}
	_ = p.down.SetReadDeadline(time.Now().Add(p.srv.flush))
	if p.heard != nil {
		<-p.heard
	}
	p.linger()
}

// linger waits for the end of down. One that does not come is waited for as long
// as the kernel has output that a slow peer still takes.
func (p *pair) linger() {
	left, progress := math.MaxInt, time.Now()
	for {
		_ = p.down.SetReadDeadline(time.Now().Add(p.srv.flush))
		if _, err := io.Copy(io.Discard, p.down); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		n, now := p.down.unsent(), time.Now()
		switch {
		case n == 0:
			return
		case n < left:
			left, progress = n, now
		case now.Sub(progress) >= p.srv.config().Timeouts.Write:
			return
		}
	}
}

// refuse tells down why there is no answer, if there is a way to say so.
func (p *pair) refuse(out []byte) {
	if len(out) == 0 || p.srv.ctx.Err() != nil || p.isCut() {
		p.cut()
		return
	}
	p.finish(out)
}

// moved is the bytes that came from both ends and that both have acknowledged.
func (p *pair) moved() uint64 {
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	if up == nil {
		return p.down.moved()
	}
	return p.down.moved() + up.moved()
}

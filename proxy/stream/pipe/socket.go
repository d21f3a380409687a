package pipe

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Socket is the goroutine's end of a pipe. It is a loop.Socket, and a net.Conn.
type Socket struct {
	*pipe
	reading, writing sync.Mutex // held by the call of Read or Write in progress
	readBy, writeBy  deadline
}

// Read implements loop.Socket.
func (s *Socket) Read(b []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		if err := s.stopped(&s.readBy); err != nil {
			return 0, err
		}
		end := s.endOfInput() // before a look at the input: nothing is delivered after it
		if n := s.in.take(b); n > 0 {
			if s.read.Add(int64(n)) >= credit {
				s.notify()
			}
			return n, nil
		}
		switch {
		case len(b) == 0:
			return 0, nil
		case end != nil && s.in.len() == 0:
			return 0, end
		case end == nil:
			s.wait(s.readable, &s.readBy)
		}
	}
}

// endOfInput returns what Read returns after the last byte, or nil while more may follow.
func (s *Socket) endOfInput() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return io.EOF
	}
	return s.err
}

// Write implements loop.Socket.
func (s *Socket) Write(b []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for {
		if err := s.canWrite(); err != nil {
			return n, err
		}
		room := Capacity - s.out.len()
		switch part := min(len(b), room); {
		case len(b) == 0:
			return n, nil
		case room <= 0:
			s.wait(s.writable, &s.writeBy)
		default:
			s.out.push(b[:part])
			s.notify()
			n += part
			if b = b[part:]; len(b) == 0 { // whatever ends meanwhile
				return n, nil
			}
		}
	}
}

func (s *Socket) canWrite() error {
	if err := s.stopped(&s.writeBy); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.state != loop.PipeOpen {
		return net.ErrClosed
	}
	return s.err
}

// stopped returns why a call can't begin or go on, whatever the loop does.
func (s *Socket) stopped(by *deadline) error {
	switch {
	case isClosed(s.abandoned):
		return net.ErrClosed
	case isClosed(by.wait()):
		return os.ErrDeadlineExceeded
	}
	return s.ctx.Err()
}

// wait returns when the call that waits must look again.
func (s *Socket) wait(changed chan struct{}, by *deadline) {
	select {
	case <-changed:
	case <-s.closed:
	case <-s.abandoned:
	case <-by.wait():
	case <-s.ctx.Done():
	}
}

// AwaitOpen waits until the endpoint can be reached. Otherwise it returns the error with which the
// loop has closed the pipe, or that of a context.
func (s *Socket) AwaitOpen(ctx context.Context) error {
	select {
	case <-s.opened:
	case <-s.abandoned:
		return net.ErrClosed
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOpen {
		return nil
	}
	return s.err
}

// Drain waits until the loop has taken all output, and reports whether it has. It gives up when the
// loop has taken none for the time limit.
func (s *Socket) Drain(limit time.Duration) bool {
	stalled := time.NewTimer(limit)
	defer stalled.Stop()
	for left := Capacity + 1; ; {
		n := s.out.len()
		if n == 0 {
			return !isClosed(s.closed) // else it was dropped
		}
		if n < left {
			left = n
			stalled.Reset(limit)
		}
		select {
		case <-s.writable:
			continue
		case <-s.closed:
		case <-s.abandoned:
		case <-s.ctx.Done():
		case <-stalled.C:
		}
		return false
	}
}

// CloseWrite implements loop.Socket. It does not block.
func (s *Socket) CloseWrite() error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if s.become(loop.PipeEnded) {
		s.notify()
	}
	return nil
}

// Close implements loop.Socket. It does not block: the loop sends what was written.
func (s *Socket) Close() error {
	if s.become(loop.PipeClosed) {
		s.in.drop()
		s.notify()
	}
	return nil
}

// Reset implements loop.Socket.
func (s *Socket) Reset() {
	if s.become(loop.PipeReset) {
		s.in.drop()
		s.out.drop()
		s.notify()
	}
}

// OnLost has f called, on a goroutine, when the loop closes the pipe although the peer has not
// ended its side: at once if that has happened.
func (s *Socket) OnLost(f func()) {
	s.mu.Lock()
	s.onLost = f
	lost := s.err != nil && !s.ended
	s.mu.Unlock()
	if lost {
		go f()
	}
}

// IsReset reports whether the stream was reset by either end.
func (s *Socket) IsReset() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == loop.PipeReset || s.err != nil && !s.ended
}

// Input returns how many bytes the loop has delivered, and how many of them were not read.
func (s *Socket) Input() (delivered uint64, unread int) { return s.in.counts() }

// Output returns how many bytes were written, and how many of them the loop has not taken.
func (s *Socket) Output() (written uint64, waiting int) { return s.out.counts() }

// SetDeadline implements loop.Socket.
func (s *Socket) SetDeadline(t time.Time) error {
	return cmp.Or(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements loop.Socket.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.readBy.set(t)
	return nil
}

// SetWriteDeadline implements loop.Socket.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	s.writeBy.set(t)
	return nil
}

// Secure implements loop.Socket. Whether the connection is encrypted is the loop's affair.
func (s *Socket) Secure() bool { return false }

// RemoteAddr returns the address of the connection's peer.
func (s *Socket) RemoteAddr() net.Addr { return s.peer }

// LocalAddr returns an address that says nothing.
func (s *Socket) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

package loop

import (
	"io"
	"time"
)

// Socket is a connection that has left its loop, or never was on one. Its
// methods block, as those of a net.Conn do, and may be called from any
// goroutine. The core only passes a Socket on, or resets it.
//
// A Socket of a driver with real sockets implements all of net.Conn. Its method NetConn()
// net.Conn returns the *net.TCPConn or *net.UnixConn below, for its options and counters. If the
// Socket is not Secure, that connection carries the same bytes, and the kernel can copy between
// two of TCP.
//
// An accepted connection counts against limits.connections until its Socket is closed.
type Socket interface {
	io.ReadWriteCloser

	// CloseWrite shuts the sending direction: the peer reads an end of file
	// and can go on sending. It blocks as Write does.
	CloseWrite() error

	// SetDeadline bounds Read, Write and CloseWrite, also calls in progress. The
	// zero time means no deadline. If the Socket is Secure, no write succeeds after
	// one that exceeded its deadline.
	SetDeadline(t time.Time) error
	// SetReadDeadline bounds Read alone.
	SetReadDeadline(t time.Time) error
	// SetWriteDeadline bounds Write and CloseWrite.
	SetWriteDeadline(t time.Time) error

	// Reset closes without blocking: the peer sees an error, not the end. A loop may call it.
	Reset()

	// Secure reports whether the bytes are encrypted on the wire (TLS).
	Secure() bool
}

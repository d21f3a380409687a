package loop

import (
	"io"
	"time"
)

// Socket is a connection that has left its loop, or never was on one. Its
// methods block, as those of a net.Conn do, and may be called from any
// goroutine. The core passes a Socket on, or resets it.
//
// A driver's Socket that rests on sockets implements all of net.Conn, and
// NetConn() net.Conn: the *net.TCPConn below, for its options and counters. If
// the Socket is not Secure, that carries the same bytes, and two such are copied
// within the kernel.
//
// An accepted connection goes on counting against limits.connections until its
// Socket is closed.
type Socket interface {
	io.ReadWriteCloser

	// CloseWrite shuts the sending direction: the peer reads an end of file
	// and can go on sending. It blocks as Write does.
	CloseWrite() error

	// SetDeadline bounds Read, Write and CloseWrite, pending ones too; the zero
	// time lifts the bound. When Secure, a write that ran into it is the last.
	SetDeadline(t time.Time) error
	// SetReadDeadline bounds Read alone.
	SetReadDeadline(t time.Time) error
	// SetWriteDeadline bounds Write and CloseWrite.
	SetWriteDeadline(t time.Time) error

	// Reset is a Close that does not block, and that the peer does not take for
	// the end of what it was sent. A loop may call it.
	Reset()

	// Secure tells whether the bytes are encrypted on their way (TLS).
	Secure() bool
}

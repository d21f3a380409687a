package loop

import (
	"errors"
	"net/netip"
)

// Conn is one connection of a loop, inbound or outbound.
type Conn interface {
	// Write sends all of b. The driver copies the bytes that the kernel does not
	// accept now and sends them later, so the caller owns b again on return.
	// After Close, Drain or the peer's close it does nothing. A write that
	// fails closes the connection; OnClose reports it later.
	Write(b []byte)

	// WriteParts is one Write of all parts in a row. It may change the elements of parts, but not
	// their bytes.
	WriteParts(parts [][]byte)

	// Buffered returns the number of bytes that Write and WriteParts took and the kernel has not. A
	// driver that encrypts includes its framing. The caller bounds it.
	Buffered() int

	// AwaitRoom defers f once, as Loop.Defer does, when the kernel has taken so much that at most left
	// bytes are Buffered. The caller has found more. A later call replaces an earlier one. After Drain or
	// the connection's end f is not deferred, but one that is deferred already still runs.
	AwaitRoom(left int, f *Flush)

	// Close discards buffered output and closes at once. No OnData follows;
	// OnClose follows after the current callback.
	Close()

	// Drain closes in order: no OnData follows, buffered output is sent, and the write side is
	// shut. Input is then read and discarded until the peer's end of file, for one second at
	// most, so that no reset destroys the last response. A driver that sees the peer still
	// taking output goes on longer. Then the connection closes and OnClose follows. Close ends
	// a drain at once.
	Drain()

	// Finish is Drain for a peer that sends nothing more. A driver whose kernel has all output, and
	// no more input, may close at once, and not await the peer's end.
	Finish()

	// Detach takes the connection off the loop, for a stream that needs
	// backpressure and half-close. The caller owns the Socket, may use it from
	// any goroutine, and must close it. No OnData follows; OnClose(nil) does, as
	// after Close. The caller passes on the bytes that OnData delivered and reads
	// all later ones from the Socket, so each byte has one owner.
	//
	// On an error nothing has changed: ErrDetachBuffered while Buffered is not
	// 0, ErrDetachClosed after Close, Drain or the peer's close,
	// errors.ErrUnsupported from a driver without sockets, else the system's error.
	Detach() (Socket, error)

	// RemoteAddr returns the peer's "ip:port", or UnixPeer. Behind a proxy that says so (PROXY
	// protocol) it is the client's.
	RemoteAddr() string

	// OriginalDst returns the address that an accepted connection was for before
	// the kernel redirected it to the listener. It is the zero value for a
	// connection that was not redirected, or whose listener does not ask. Detach
	// does not change it.
	OriginalDst() netip.AddrPort

	// Protocol returns the application protocol that the peers have agreed on in their TLS
	// handshake (ALPN, such as "h2"). It is "" without TLS, and if they have agreed on none.
	Protocol() string

	// SetReceiver makes r receive the events that follow, in place of the one before. It may be
	// called within OnOpen and OnData. OnOpen of r is not called.
	SetReceiver(r Receiver)

	// HasInput reports whether the kernel has input that the loop has not read, or the end of the input. Without it
	// a late loop would take a connection for idle whose next request waits.
	HasInput() bool
}

// Receiver receives the events of one connection, on the connection's loop.
type Receiver interface {
	// OnOpen is called first, once, when an inbound connection was accepted or
	// an outbound one is established.
	OnOpen(c Conn)

	// OnData delivers received bytes, at least one. b is valid until OnData
	// returns; the driver keeps no reference to it.
	OnData(b []byte)

	// OnClose is called last, exactly once, however the connection ended, and
	// never inside another callback of the same loop. err is nil after Close or
	// Drain, io.EOF after the peer's close (a half-close counts as one, unless
	// the receiver is a HalfCloser that stays), the system's error after a reset
	// or a refused or timed-out dial. With TLS only a close_notify is the peer's
	// close: without one, input may be missing.
	OnClose(err error)
}

// ErrDialQueue ends a dial that was not tried: the driver's queue of dials is full, or it has waited
// there until its timeout, or the connection would take a file descriptor that others need.
var ErrDialQueue = errors.New("proxy: too many dials are waiting")

// The errors of Conn.Detach.
var (
	ErrDetachBuffered = errors.New("proxy: output is buffered, so the connection can't leave its loop")
	ErrDetachClosed   = errors.New("proxy: the connection is not open")
)

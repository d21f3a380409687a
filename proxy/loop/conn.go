package loop

import (
	"errors"
	"net/netip"
)

// Conn is one connection of a loop, inbound or outbound.
type Conn interface {
	// Write sends b. It takes all of b: what the kernel does not accept now is
	// copied and sent as it can be, so b is the caller's again on return.
	// After Close, Drain or the peer's close it does nothing. A write that
	// fails closes the connection; the notice comes later through OnClose.
	Write(b []byte)

	// Buffered is the count of bytes that Write took and the kernel has not,
	// with the framing of a driver that encrypts them.
	// The caller bounds it: there is no "writable" event.
	Buffered() int

	// Close drops what is still buffered and closes at once. No OnData
	// follows; OnClose does, after the current callback.
	Close()

	// Drain closes in an orderly way: no OnData follows; what is buffered is
	// sent, the write side is shut, and input is read and dropped until the
	// peer's end of file or one second, and on where the driver can tell that
	// the peer still takes output, so that no reset destroys the last answer.
	// Then the connection is closed and OnClose called. A Close while
	// it drains cuts that short.
	Drain()

	// Detach takes the connection off the loop, for a stream that needs
	// backpressure and half-close: the Socket is the caller's, to be used from
	// any goroutine and closed. No OnData follows; OnClose(nil) does, as after
	// Close. What OnData has handed over is the caller's to pass on, all that
	// comes after it is read from the Socket, so each byte has one owner.
	//
	// On an error nothing has changed: ErrDetachBuffered while Buffered is not
	// 0, ErrDetachClosed after Close, Drain or the peer's close,
	// errors.ErrUnsupported from a driver without sockets, else the system's
	// error.
	Detach() (Socket, error)

	// RemoteAddr is the peer's "ip:port".
	RemoteAddr() string

	// OriginalDst is where an accepted connection was going when the kernel
	// redirected it to the listener. The zero value of one that was not, and of
	// those of listeners that do not ask.
	OriginalDst() netip.AddrPort
}

// Stream receives the events of one connection, on the connection's loop.
type Stream interface {
	// OnOpen comes first, once, when an inbound connection was accepted or an
	// outbound one is established.
	OnOpen(c Conn)

	// OnData hands over what arrived, never empty. b is valid until OnData
	// returns; the driver keeps nothing of it.
	OnData(b []byte)

	// OnClose comes last, exactly once, for whatever reason, and never inside
	// another callback of the same loop. err is nil after an own Close or
	// Drain, io.EOF after the peer's close (a half-close counts as one), the
	// system's error after a reset or a refused or timed-out dial.
	OnClose(err error)
}

// Destined is a Stream given to Dial that says which service its connection
// leads to. A driver that secures connections chooses by that how; the core
// knows no more of it.
type Destined interface {
	Stream
	Service() string
}

// ErrDialQueue ends a dial when as many others wait for the driver as it lets.
var ErrDialQueue = errors.New("proxy: too many dials are waiting")

// Why Conn.Detach refuses.
var (
	ErrDetachBuffered = errors.New("proxy: output is buffered, so the connection can't leave its loop")
	ErrDetachClosed   = errors.New("proxy: the connection is not open")
)

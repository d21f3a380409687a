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

	// SetStream makes s receive the events that follow, in place of the stream before. It may be
	// called within OnOpen and OnData. OnOpen of s is not called.
	SetStream(s Stream)
}

// HasInput reports whether the kernel has input of c that the loop has not read, or the end of its input. Without it
// a late loop would take a connection for idle whose next request waits. It is false if the driver of c does not know.
func HasInput(c Conn) bool {
	w, ok := c.(interface{ HasInput() bool })
	return ok && w.HasInput()
}

// Stream receives the events of one connection, on the connection's loop.
type Stream interface {
	// OnOpen is called first, once, when an inbound connection was accepted or
	// an outbound one is established.
	OnOpen(c Conn)

	// OnData delivers received bytes, at least one. b is valid until OnData
	// returns; the driver keeps no reference to it.
	OnData(b []byte)

	// OnClose is called last, exactly once, however the connection ended, and
	// never inside another callback of the same loop. err is nil after Close or
	// Drain, io.EOF after the peer's close (a half-close counts as one, unless
	// the stream is a HalfCloser that stays), the system's error after a reset
	// or a refused or timed-out dial. With TLS only a close_notify is the peer's
	// close: without one, input may be missing.
	OnClose(err error)
}

// HalfCloser is a Stream that may send more to a peer that sends nothing more.
type HalfCloser interface {
	Stream
	// OnEnd is called, at most once, between OnOpen and OnClose, when the peer's output has ended. The
	// peer may have closed its side only, or the whole connection: on TCP both look alike until output
	// meets a reset. No OnData follows. If OnEnd returns true, the stream ends the connection itself, in
	// limited time, and OnClose comes as after any other end of it, a reset included. Otherwise the driver
	// closes the connection, and OnClose(io.EOF) follows.
	OnEnd() (stays bool)
}

// Destined is a Stream given to Dial that tells the service of its endpoint, by a key. A driver
// that secures connections chooses the TLS settings by it. After a reload another service may have
// the same name, while requests of the former one still dial.
type Destined interface {
	Stream
	ServiceKey() string
}

// Named is a Destined whose endpoint must prove a name, if its service has TLS. "" means none in
// particular. The connection must not be used for another name.
type Named interface {
	Destined
	ServerName() string
}

// Negotiated is a Destined whose endpoint must select an application protocol (ALPN) if its
// service has TLS: one that selects another one, or none, is not connected to.
type Negotiated interface {
	Destined
	ALPN() string // as registered with IANA, such as "h2"
}

// Verified is a Stream whose peer may have shown a certificate.
type Verified interface {
	Stream
	// OnUntrusted is called, at most once, between OnOpen and OnClose, when the peer's
	// certificate has ended or is no longer accepted. The stream must end the connection, and
	// may first end its requests in order, in limited time. A driver closes the connection of
	// a Stream that is not Verified.
	OnUntrusted()
}

// Movable is a Stream of an accepted connection that can continue on another loop.
type Movable interface {
	Stream
	// Leave is called when the connection has input. If ok is true, the driver ends the stream with
	// OnClose(nil), as if the connection had closed, and begins another one on the other loop, as if
	// the connection had been accepted there. That one gets past, if it is not 0, and then the input.
	Leave() (past int, ok bool)
	// Resume is called after OnOpen, with what Leave of the former stream has returned.
	Resume(past int)
}

// ErrDialQueue ends a dial that was not tried: the driver's queue of dials is full, or it has waited
// there until its timeout, or the connection would take a file descriptor that others need.
var ErrDialQueue = errors.New("proxy: too many dials are waiting")

// The errors of Conn.Detach.
var (
	ErrDetachBuffered = errors.New("proxy: output is buffered, so the connection can't leave its loop")
	ErrDetachClosed   = errors.New("proxy: the connection is not open")
)

package proxy

import (
	"errors"
	"io"
	"net/netip"
	"time"
)

// Loop is all that the core knows of the world: time and connections. What a
// loop owns is touched by that loop alone, so the core takes no lock.
//
// Every method but Post is called from the loop's own callbacks (Stream, Timer,
// Flush, or a function given to Post). Two drivers implement Loop: proxy/reactor
// on real sockets and proxy/sim on virtual time; proxy/conformance holds both to
// the rules written here.
//
// A turn is one round of the driver: the ready events and due timers are handed
// out one after another, then the deferred flushes run, then the close notices
// that arose meanwhile. Callbacks never nest: no method of Loop or Conn calls
// back into the core before it returns.
type Loop interface {
	// Now is the monotonic time since a start that the driver chose, the same
	// for all loops of a process. It does not move within one callback.
	Now() time.Duration

	// After arms t to fire once, d from now (at once, but not within this
	// call, when d <= 0). An armed timer is moved. It does not allocate in
	// steady state, and is precise to well under a millisecond.
	After(d time.Duration, t *Timer)

	// Stop disarms t. A timer that is not armed stays so.
	Stop(t *Timer)

	// Defer runs f once, at the end of this turn: the flush point, where all
	// that the turn produced for one peer leaves in one write. A Flush that is
	// already queued is not queued again.
	Defer(f *Flush)

	// Dial connects to addr ("host:port", the host an IP address) and never
	// blocks. The outcome arrives as s.OnOpen, or as s.OnClose without an
	// OnOpen when it failed or took longer than timeout: with ErrDialQueue when
	// it was not tried.
	Dial(addr string, timeout time.Duration, s Stream)

	// Post runs f on the loop, soon. It is the only method that other
	// goroutines may call. Functions posted by one goroutine need not run in
	// order: what carries state carries a version. After the loop has stopped,
	// f is dropped.
	Post(f func())
}

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

// ErrDialQueue ends a dial when as many others wait for the driver as it lets.
var ErrDialQueue = errors.New("proxy: too many dials are waiting")

// Why Conn.Detach refuses.
var (
	ErrDetachBuffered = errors.New("proxy: output is buffered, so the connection can't leave its loop")
	ErrDetachClosed   = errors.New("proxy: the connection is not open")
)

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

// Timer is a one-shot timer, embedded in what it serves and reused. Fire is set
// once, before the first After. The zero value with Fire set is disarmed.
type Timer struct {
	// Fire is called on the loop when the timer is due; it may arm it again.
	Fire func()

	armed bool
	at    time.Duration
	seq   uint64 // order among equal times

	// Its place in the heap is that of a time that is not after at.
	pos       int // 1 + index; 0: it has none
	placedAt  time.Duration
	placedSeq uint64
}

// Armed tells whether t is waiting to fire.
func (t *Timer) Armed() bool { return t.armed }

// Flush is a deferred piece of work, embedded in what it flushes and reused.
type Flush struct {
	// Do is called at the end of the turn; it may Defer the Flush again, for
	// the end of the next turn.
	Do func()

	queued bool
}

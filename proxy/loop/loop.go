package loop

import "time"

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

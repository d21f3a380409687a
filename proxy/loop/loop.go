package loop

import "time"

// Loop gives the core time and connections. Only the loop itself touches the data
// it owns, so the core takes no lock.
//
// Every method but Post is called from the loop's own callbacks (Receiver, Timer,
// Flush, or a function given to Post). Two drivers implement Loop: proxy/reactor
// on real sockets and proxy/sim on virtual time. The tests of proxy/conformance
// check that both keep the rules written here.
//
// A turn is one round of the driver. First it delivers the ready events, due timers
// and posted functions one after another, then it runs the deferred flushes, then it
// calls the OnClose callbacks of connections that ended meanwhile. Callbacks never nest: no
// method of Loop or Conn calls back into the core before it returns.
type Loop interface {
	// Now returns the monotonic time since a start that the driver chose, the
	// same for all loops of a process. It does not change within one callback.
	Now() time.Duration

	// After arms t to fire once, d from now. With d <= 0 it fires as soon as possible, but
	// after this call has returned. A timer that is armed is armed anew. After does not
	// allocate in steady state, and its error is well under a millisecond.
	After(d time.Duration, t *Timer)

	// Stop disarms t. It does nothing to a timer that is not armed.
	Stop(t *Timer)

	// Defer runs f once, at the end of this turn. All output of the turn for one peer then
	// leaves in one write. A Flush that is already queued is not queued again.
	Defer(f *Flush)

	// Dial connects to addr ("ip:port" or a Unix socket) and never blocks. It ends with
	// r.OnOpen, or with r.OnClose alone if it failed or took longer than timeout. The error is ErrDialQueue if the dial was not tried.
	Dial(addr string, timeout time.Duration, r Receiver)

	// Post runs f on the loop, soon. It is the only method that other goroutines may call.
	// Functions posted by one goroutine may run in any order, so a state that is posted needs
	// a version. After the loop has stopped, f is dropped.
	Post(f func())
}

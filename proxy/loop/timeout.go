package loop

import "time"

// TimeoutKind is what a session waits for.
type TimeoutKind uint8

const (
	TimeoutOff  TimeoutKind = iota // nothing
	TimeoutIdle                    // the next message
	TimeoutHead                    // the rest of a head
	TimeoutBody                    // the rest of a body
	TimeoutEnd                     // the next response, after the end of the requests
)

// Timeout is the timeout of a session, which waits for one kind of event at a time.
// Starting it again for each message costs no timer operation: the timer stays armed
// for an earlier time, and when it fires too early it is armed for the rest.
type Timeout struct {
	loop     Loop
	timer    Timer
	kind     TimeoutKind
	since    time.Duration // when the timeout was started
	expires  time.Duration
	armed    time.Duration // when timer fires
	onExpiry func(TimeoutKind)
}

// Init prepares t for loop l, which calls onExpiry when a timeout has expired and t is off.
func (t *Timeout) Init(l Loop, onExpiry func(TimeoutKind)) {
	t.loop, t.onExpiry = l, onExpiry
	t.timer.Fire = t.fire
}

// Start starts the timeout of kind k, d from now, in place of the one that is running.
func (t *Timeout) Start(k TimeoutKind, d time.Duration) {
	t.kind, t.since = k, t.loop.Now()
	t.expires = t.since + d
	if !t.timer.Armed() || t.armed > t.expires {
		t.armed = t.expires
		t.loop.After(d, &t.timer)
	}
}

// StartIdle starts the idle timeout.
func (t *Timeout) StartIdle(d time.Duration) { t.Start(TimeoutIdle, d) }

// IdleFor returns how long the idle timeout has been running, 0 if it is not.
func (t *Timeout) IdleFor() time.Duration {
	if t.kind != TimeoutIdle {
		return 0
	}
	return t.loop.Now() - t.since
}

// Running reports whether the timeout of kind k is running.
func (t *Timeout) Running(k TimeoutKind) bool { return t.kind == k }

// Stop stops the timeout. The timer stays armed; firing it does nothing.
func (t *Timeout) Stop() { t.kind = TimeoutOff }

// Close stops the timeout and disarms the timer.
func (t *Timeout) Close() {
	t.kind = TimeoutOff
	t.loop.Stop(&t.timer)
}

func (t *Timeout) fire() {
	if t.kind == TimeoutOff {
		return
	}
	if left := t.expires - t.loop.Now(); left > 0 {
		t.armed = t.expires
		t.loop.After(left, &t.timer)
		return
	}
	k := t.kind
	t.kind = TimeoutOff
	t.onExpiry(k)
}

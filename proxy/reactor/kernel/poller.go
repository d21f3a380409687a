package kernel

import "time"

// Events says what a descriptor is ready for.
type Events uint8

// The events. A Poller reports All together with Input, and a failed connect as Output.
const (
	Input  Events = 1 << iota // a read does not wait; at a listening socket: an accept
	Output                    // the kernel takes more bytes, or a connect has ended
	All                       // input must be read until there is none: it ends, has failed, or has urgent data, at which a read stops
)

// Shared is for the Input of a listening socket that several Pollers watch: one or all tell their loops of a connection.
const Shared Events = 1 << 7

// MaxReady is how many events a turn has at most.
const MaxReady = 64

// Poller waits for the descriptors of one loop, and runs the turns of the loop. It reports a descriptor
// once when the descriptor becomes ready, or more to it (edge-triggered): who leaves input must call
// Change. Only one goroutine may use a Poller, but for Wake.
type Poller interface {
	// Add watches fd for e: Input, Input with Shared, or Output.
	Add(fd int, e Events) error

	// Change watches fd for e from now on, Input or Input with Output, and reports what fd is ready for.
	Change(fd int, e Events) error

	// Remove ends watching fd, which the caller closes next or, if kernel.Moves, gives to another Poller. A close
	// alone ends it if the socket has no other descriptor.
	Remove(fd int) error

	Run(t Turns)  // waits, and calls t for each turn, until EndTurn stops it
	Wake()        // has a turn begin soon; any goroutine may call it before Close
	Close() error // closes no descriptor that it watches; Run must have ended, or not begun
}

// Turns is a loop, as its Poller sees it. A turn is BeginTurn, OnEvents for at most MaxReady descriptors that are
// ready, and EndTurn.
type Turns interface {
	BeginTurn()
	OnEvents(fd int, e Events)
	EndTurn() Wait
}

// Wait says how a Poller may wait after a turn. Without an event or Wake the next turn begins when Limit has passed, or
// earlier. 0 means that the Poller doesn't wait, and a negative Limit that it waits for ever.
type Wait struct {
	Limit time.Duration
	Now   time.Duration // when the turn ended, by the loop's clock
	Rest  bool          // the wait will probably take longer than 10 ms
	Stop  bool          // ends Run
}

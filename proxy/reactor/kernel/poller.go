package kernel

// Events says what a descriptor is ready for.
type Events uint8

// The events. A Poller reports Ended together with Input, and a failed connection whatever it watches.
const (
	Input  Events = 1 << iota // a read does not wait; at a listening socket: an accept
	Output                    // the kernel takes more bytes, or a connect has ended
	Ended                     // no more input follows what is there, or the connection has failed
)

// MaxReady is how many events Wait returns at most.
const MaxReady = 64

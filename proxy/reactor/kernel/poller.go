package kernel

// Events says what a descriptor is ready for.
type Events uint8

// The events. A Poller reports All together with Input, and a failed connection whatever it watches.
const (
	Input  Events = 1 << iota // a read does not wait; at a listening socket: an accept
	Output                    // the kernel takes more bytes, or a connect has ended
	All                       // input must be read until there is none: it ends, has failed, or has urgent data, at which a read stops
)

// MaxReady is how many events Wait returns at most.
const MaxReady = 64

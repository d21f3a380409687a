package kernel

// Events says what a descriptor is ready for.
type Events uint8

// The events. A Poller reports Ended together with Input.
const (
	Input  Events = 1 << iota // a read does not wait; at a listening socket: an accept
	Output                    // the kernel takes more bytes, or a connect has ended
	Ended                     // no more input follows what is there, or the connection has failed
	Shared                    // of Add alone: several Pollers watch, and one of them is told
)

// MaxReady is how many events Wait returns at most.
const MaxReady = 64

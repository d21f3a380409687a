package mux

import "time"

// The limits of a connection that carries many requests at once.
const (
	// MaxStreams is how many requests may be open on one connection: what a peer is
	// allowed, and what a peer is taken to allow until it says so itself.
	MaxStreams = 4096

	// MaxOutbound is how much may wait in a connection's own buffer before the rest
	// is kept back, where short messages can still overtake it.
	MaxOutbound = 256 << 10

	// BatchSize is how much is put together for one write.
	BatchSize = 64 << 10

	// RetryWrite is how long a connection waits before it looks again when its peer
	// takes less than it is sent.
	RetryWrite = time.Millisecond
)

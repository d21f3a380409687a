package proxy

import "time"

// The limits of a connection that carries many requests at once.
const (
	// maxStreams is how many requests may be open on one connection: what a peer is
	// allowed, and what a peer is taken to allow until it says so itself.
	maxStreams = 4096

	// maxOutbound is how much may wait in a connection's own buffer before the rest
	// is kept back, where short messages can still overtake it.
	maxOutbound = 256 << 10

	// batchSize is how much is put together for one write.
	batchSize = 64 << 10

	// retryWrite is how long a connection waits before it looks again when its peer
	// takes less than it is sent.
	retryWrite = time.Millisecond
)

package mux

// The limits of a connection that carries many requests at a time.
const (
	// MaxStreams is the highest number of requests in flight on one connection. A peer is
	// told this limit, and is assumed to have it until it announces its own.
	MaxStreams = 4096

	// MaxOutbound is the number of bytes in a connection's own buffer past which nothing
	// more is put there. Outside of it short messages can still overtake long ones.
	MaxOutbound = 256 << 10

	BatchSize = 64 << 10 // bytes that are put together for one write

	// StreamWindow is the receive window of a stream of HTTP/2, in bytes. It bounds what one round trip carries, and what the
	// pipe of a stream holds.
	StreamWindow = 256 << 10
)

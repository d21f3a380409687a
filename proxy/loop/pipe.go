package loop

// Pipe is a loop's end of a Socket that has no connection of its own: a stream of a connection
// that carries many. The loop delivers what the peer sends, and takes what the goroutine writes.
// Only the loop that made a Pipe uses it. No method blocks.
//
// The function ready, given when the pipe is made, is called on the loop after State has changed,
// Output has begun to return bytes, or Taken would return several KiB. Calls for several changes
// may come as one.
//
// A loop whose peer has a window grants it once, and then as much again as Taken returns: so
// the memory of a Pipe is bounded by the window. It must be 16 KiB or more. The Socket's Write
// blocks while 64 KiB wait for Consume.
type Pipe interface {
	// Open tells the goroutine that the peer can be reached. Before it, a Pipe to an endpoint is a
	// dial in progress, and Close fails the dial. Other pipes are open from the start. A
	// second call does nothing.
	Open()

	// Deliver adds b to what the Socket's Read returns. It keeps a copy. After the goroutine has
	// closed or reset the Socket, it does nothing but count b as taken.
	Deliver(b []byte)

	// End lets Read return the end of file after what was delivered. For a client it means that
	// the client has left: a request that is complete needs no end of file.
	End()

	// Taken returns how many delivered bytes the goroutine has read since the last call.
	Taken() int

	// Output returns bytes that the goroutine has written and Consume has not removed, not
	// necessarily all; nil means that there are none. They are valid until Consume or Close.
	Output() []byte

	// Consume removes the first n bytes of Output.
	Consume(n int)

	// Charge counts n more bytes of memory that the caller has for the stream outside of the Pipe. A
	// negative n releases them. Close releases the rest.
	Charge(n int)

	// State returns what the goroutine has done with its Socket.
	State() PipeState

	// Close is the last call, whether the stream is over or has failed: ready is not called
	// afterwards, and what Output had is dropped. The Socket's Write fails with err. After what was
	// delivered, Read fails with err, too, unless End was called. A nil err stands for a reset by
	// the peer.
	Close(err error)
}

// PipeState is what the goroutine has done with the Socket of a Pipe.
type PipeState uint8

const (
	PipeOpen   PipeState = iota
	PipeEnded            // CloseWrite: after what Output has, no more follows
	PipeClosed           // Close: nor is anything read any more
	PipeReset            // Reset: the stream failed, and what was written is incomplete
)

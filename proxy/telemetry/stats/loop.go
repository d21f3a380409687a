package stats

// LoopStats are a driver's counts of one loop: plain integers that only the loop writes.
type LoopStats struct {
	Connections int           // open or being dialled, accepted ones included
	Events      uint64        // of connections and timers
	Moved       uint64        // connections that continued on another loop
	Turns       Histogram     // duration of turns, from their first event to their last flush
	TurnEvents  SizeHistogram // events per turn
}

// Metered is a Loop that counts its turns.
type Metered interface {
	// Stats returns a copy of the counts. It is called on the loop, or by Peek.
	Stats() LoopStats
}

// DriverStats is a snapshot of a driver's counters, of all loops together.
type DriverStats struct {
	Accepted      int64 // connections accepted and given to a loop
	Refused       int64 // connections closed at once because of limits.connections, or by RefuseWhile
	RefusedSource int64 // connections closed at once because of limits.per_source
	AcceptErrors  int64 // failed accepts, and accepted sockets that failed to reach a loop
	Inbound       int64 // open connections that were accepted, including detached and reserved ones
	Open          int64 // open connections, accepted or dialled, including detached and reserved ones
	Dialled       int64 // connections established by dials
	DialErrors    int64 // dials that failed or took too long
	Panics        int64 // panics that were recovered from, on loops and goroutines
	Detached      int64 // connections that left their loop
	Handshakes    int64 // TLS handshakes that succeeded
	Resumed       int64 // those that resumed a session

	// TLSFailures counts refused and broken TLS connections by code. The map is the
	// caller's.
	TLSFailures map[string]int64
}

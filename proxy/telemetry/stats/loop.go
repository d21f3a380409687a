package stats

// LoopStats are a driver's counts of one loop: plain integers that only the loop
// writes.
type LoopStats struct {
	Connections int           // open or being dialled, accepted ones included
	Events      uint64        // of connections and timers
	Turns       Histogram     // duration of turns, from their first event to their last flush
	TurnEvents  SizeHistogram // events per turn
}

// Metered is a Loop that counts its turns.
type Metered interface {
	// Stats returns a copy of the counts. It is called on the loop.
	Stats() LoopStats
}

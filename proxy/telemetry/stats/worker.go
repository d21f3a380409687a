package stats

import "github.com/remora-proxy/remora/proxy/fault"

// WorkerStats are the counts of one loop, which alone writes them. Worker.Report copies them.
type WorkerStats struct {
	Connections   int    // downstream connections open now
	Requests      uint64 // exchanges begun
	Replays       uint64 // requests sent again because a pooled connection was stale
	WriteTimeouts uint64 // connections closed because the peer took no output
	ShedIdle      uint64 // idle connections closed because the process can run out of a resource
	Shed          uint64 // connections closed because they held the most memory
	LinkFlushes   uint64 // writes to links
	LinkBytesIn   uint64
	LinkBytesOut  uint64
	Cancels       uint64        // attempts cancelled over a link
	CancelsSaved  uint64        // of these, attempts dropped before the application saw them
	LinkBatches   SizeHistogram // messages in each write to a link, with refusals and cancellations

	Handoffs [Handoffs]uint64 // connections and bodies that left the loop as streams

	// Errors counts the error responses of this sidecar by their stable code
	// (x-remora-error). A code that did not occur has no entry.
	Errors map[string]uint64
}

// Failed counts an error response of this sidecar.
func (s *WorkerStats) Failed(f *fault.Failure) {
	if s.Errors == nil {
		s.Errors = make(map[string]uint64)
	}
	s.Errors[f.Code]++
}

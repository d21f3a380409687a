package stats

import "github.com/remora-proxy/remora/proxy/fault"

// WorkerStats are the counts of one loop: plain integers that only the loop
// writes. Worker.Report returns a copy.
type WorkerStats struct {
	Connections   int    // downstream connections open now
	Requests      uint64 // exchanges begun
	Replays       uint64 // requests sent again since a pooled connection had gone stale
	WriteTimeouts uint64 // connections closed since the peer took nothing
	Shed          uint64 // connections closed since they held most, far past limits.buffered
	LinkFlushes   uint64 // writes to links
	LinkBytesIn   uint64
	LinkBytesOut  uint64
	Cancels       uint64 // attempts withdrawn over a link
	CancelsSaved  uint64 // of these, dropped before the application saw them

	// LinkBatches are the requests, answers, refusals and withdrawals that left
	// on a link together.
	LinkBatches SizeHistogram

	Handoffs [Handoffs]uint64 // connections and bodies that left the loop to be streams

	// Errors counts the answers that this sidecar made itself, by their stable
	// code (x-remora-error); codes that did not occur are missing.
	Errors map[string]uint64
}

func (s *WorkerStats) Failed(f *fault.Failure) {
	if s.Errors == nil {
		s.Errors = make(map[string]uint64)
	}
	s.Errors[f.Code]++
}

package link

import "time"

// Load is the state of a service as its provider sees it: all loops and all
// consumers together. Durations travel in microseconds, rounded up.
type Load struct {
	Pending     uint32        // requests at the application
	Queued      uint32        // requests waiting in front of it
	Latency     time.Duration // recent latency of the application; 0: unknown
	SinceAnswer time.Duration // since its last answer; negative: none yet
}

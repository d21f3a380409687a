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

	Redirects uint64 // responses of routes that redirect
	Responses uint64 // responses of routes that respond themselves

	Handoffs [Handoffs]uint64 // connections and bodies that left the loop as streams

	// Errors counts the error responses of this sidecar. What did not occur has no entry.
	Errors Errors

	// Unrouted counts, by listener, those of Errors that no service counts: the request was
	// refused before it was admitted to one.
	Unrouted map[string]uint64

	// HTTP2 counts, by reason, the connections and streams of HTTP/2 that ended with an error of
	// the client. What did not occur has no entry.
	HTTP2 map[string]uint64
}

// Errors are counts of error responses.
type Errors map[ErrorKey]uint64

// ErrorKey says which error responses are counted together.
type ErrorKey struct {
	Listener string // its name; empty for a stream whose listener is unknown
	Code     string // stable (x-remora-error)
}

// maxErrorKeys bounds Errors, which survives reloads that rename listeners. Above it, new keys
// count without their listener.
const maxErrorKeys = 1024

// CountFailure counts an error response of this sidecar to a request of a listener.
func (s *WorkerStats) CountFailure(listener string, f *fault.Failure) {
	if s.Errors == nil {
		s.Errors = Errors{}
	}
	k := ErrorKey{listener, f.Code}
	n, known := s.Errors[k]
	if !known && len(s.Errors) >= maxErrorKeys {
		k.Listener = ""
		n = s.Errors[k]
	}
	s.Errors[k] = n + 1
}

// CountUnrouted counts a request that no service counts, beside Failed.
func (s *WorkerStats) CountUnrouted(listener string) {
	if s.Unrouted == nil {
		s.Unrouted = make(map[string]uint64)
	}
	if _, known := s.Unrouted[listener]; !known && len(s.Unrouted) >= maxErrorKeys {
		listener = ""
	}
	s.Unrouted[listener]++
}

// CountMisuse counts a connection or stream of HTTP/2 that ended for one of the codec's reasons, beside
// Failed.
func (s *WorkerStats) CountMisuse(reason string) {
	if s.HTTP2 == nil {
		s.HTTP2 = make(map[string]uint64)
	}
	s.HTTP2[reason]++
}

// Of returns the number of error responses with a code, over all listeners.
func (e Errors) Of(code string) (n uint64) {
	for k, more := range e {
		if k.Code == code {
			n += more
		}
	}
	return n
}

// CountAnswer counts a response of a route that leads to no service.
func (s *WorkerStats) CountAnswer(redirects bool) {
	if redirects {
		s.Redirects++
	} else {
		s.Responses++
	}
}

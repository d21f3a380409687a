package lb

import (
	"sync/atomic"
	"time"
)

// stallPending is how many attempts must be pending before the silence of an endpoint means
// anything: a single attempt may be a slow request.
const stallPending = 2

// Work is what this loop has pending at an endpoint, and how long the endpoint has been silent. The
// endpoint's ring and the process count the work, too.
type Work struct {
	pending int
	batch   int           // of pending: load only without a report; see CountBatch
	streams int           // open streams: load without a pending response
	process *atomic.Int32 // see CountIn
	ring    *ring         // that the endpoint is on; nil without a keyed policy

	started time.Duration // when the last attempt or stream was handed to the endpoint
	// quietSince is the last response, or the start of the oldest pending attempt if the
	// endpoint was idle before.
	quietSince time.Duration
}

// add changes the totals that the work counts in.
func (w *Work) add(n int) {
	if w.process != nil {
		w.process.Add(int32(n))
	}
	if w.ring != nil {
		w.ring.load += n
	}
}

func (w *Work) begin(now time.Duration) {
	if w.pending == 0 {
		w.quietSince = now
	}
	w.pending++
	w.add(1)
	w.started = now
}

// Drop counts the end of an attempt without a response of the application: cancelled, refused,
// reset, or past its deadline. So a silence continues while anything is pending.
func (w *Work) Drop() {
	if w.pending == 0 {
		panic("lb: an attempt ended that was not started")
	}
	w.pending--
	w.add(-1)
}

// CountBatch counts n pending attempts as batch; a negative n counts -n attempts as batch no longer.
// Batch attempts are load only if the endpoint's sidecar reports no load: a sidecar that reports lets
// batch wait for other requests, and counts in its report the batch that does not wait.
func (w *Work) CountBatch(n int) {
	w.batch += n
	if w.process != nil {
		w.process.Add(int32(-n))
	}
}

// OpenStream counts a stream, such as an opaque TCP connection, in the load until its CloseStream. A
// stream has no time by which it should respond, so it does not affect stalls, latency and the
// usual load. It may be a probe.
func (w *Work) OpenStream(now time.Duration) {
	w.streams++
	w.add(1)
	w.started = now
}

// CloseStream counts a stream down.
func (w *Work) CloseStream() {
	if w.streams == 0 {
		panic("lb: a stream ended that was not opened")
	}
	w.streams--
	w.add(-1)
}

// CountIn makes n, which all loops of the process share, count their work at the address.
// Without such a count, this loop assumes that it is the only one.
func (w *Work) CountIn(n *atomic.Int32) {
	if n == w.process {
		return
	}
	if w.process != nil {
		w.process.Add(int32(-w.ofLoop()))
	}
	n.Add(int32(w.ofLoop()))
	w.process = n
}

// ofLoop is this loop's part of the process's work.
func (w *Work) ofLoop() int { return w.pending - w.batch + w.streams }

// Pending returns the number of this loop's attempts at the endpoint.
func (w *Work) Pending() int { return w.pending }

// Streams returns the number of this loop's streams at the endpoint.
func (w *Work) Streams() int { return w.streams }

// OfProcess returns the number of this process's attempts and streams at the endpoint, without batch.
func (w *Work) OfProcess() int {
	if w.process == nil {
		return w.ofLoop()
	}
	return int(w.process.Load())
}

// Silence returns how long attempts of this loop have been pending without any response of the
// endpoint. It is 0 if nothing is pending.
func (w *Work) Silence(now time.Duration) time.Duration {
	if w.pending == 0 {
		return 0
	}
	return now - w.quietSince
}

// Stalled reports whether two or more attempts are pending and the endpoint has sent no
// response for the time after. 0 disables stalls.
func (w *Work) Stalled(now, after time.Duration) bool {
	return after > 0 && w.pending >= stallPending && now-w.quietSince >= after
}

// stallProbeDue reports whether a stalled endpoint may get a request, see Stall.Probe.
func (w *Work) stallProbeDue(now, every time.Duration) bool {
	return now-w.started >= max(every, w.Silence(now)/2, 1)
}

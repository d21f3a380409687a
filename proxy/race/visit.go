package race

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/spare"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// visit tells an endpoint what came of an attempt there: that it is over, and the verdict. Attempt.send fills in the
// visit and counts the load, and end follows once.
type visit struct {
	ep     *lb.Endpoint  // nil before one is picked
	sent   time.Duration // when the visit began
	load   spare.Level   // of ep, before the visit
	stream bool          // the visit counts as a stream, else as a request
	batch  bool          // the request is batch

	isError    bool // the response is an error of 4xx or 5xx
	verdictDue bool // the gRPC call is a stream, whose end gives the verdict
	judged     bool // a stream: the endpoint has the verdict
	timedOut   bool // the endpoint was judged for not responding in time
}

// endpoint is what the service has of ep.
func (v *visit) endpoint() *service.Endpoint { return v.ep.Ext.(*service.Endpoint) }

// end ends the visit with its outcome. done reports whether the application has done the work. latency is the time that
// this took; 0 means that it says nothing about the endpoint: a quick failure must not make the endpoint look fast.
func (v *visit) end(now time.Duration, outcome stats.AttemptOutcome) (latency time.Duration, done bool) {
	v.judge(now, outcome)
	if v.stream {
		v.ep.CloseStream()
		return 0, false
	}
	latency = now - v.sent
	v.endpoint().CountEnd(outcome, latency)
	if v.batch { // its latency has the time for which it let others go first
		v.ep.CountBatch(-1)
		latency = 0
	}
	switch outcome {
	case stats.AttemptNone, stats.AttemptBroken:
		v.ep.Drop()
		return 0, false
	case stats.AttemptClosed:
		v.ep.Presume(now, latency)
		return latency, true
	case stats.AttemptFailure:
		latency = 0
	case stats.AttemptServed:
		if v.isError && latency > 0 {
			latency = v.ep.LatencyOfError(latency)
		}
	case stats.AttemptUnseen:
	}
	v.ep.Finish(now, latency)
	if v.ep.Refuses() {
		v.ep.CountTaken(v.sent)
	}
	return latency, true
}

// judge gives the endpoint the verdict of an outcome.
func (v *visit) judge(now time.Duration, outcome stats.AttemptOutcome) {
	switch outcome {
	case stats.AttemptBroken, stats.AttemptFailure:
		v.ep.Judge(now, false)
		v.ep.CountErrorStatus(now, now-v.sent, true)
	case stats.AttemptServed:
		if !v.verdictDue {
			v.ep.Judge(now, true)
		}
		if v.isError {
			v.ep.CountErrorStatus(now, now-v.sent, false)
		}
	case stats.AttemptNone, stats.AttemptUnseen, stats.AttemptClosed:
	}
}

// judgeStream gives the endpoint the verdict of a stream, which may last for longer. It does nothing if the endpoint has
// one, or if the outcome says nothing about the endpoint.
func (v *visit) judgeStream(now time.Duration, outcome stats.AttemptOutcome, isError bool) {
	if v.judged || outcome == stats.AttemptNone {
		return
	}
	v.judged, v.isError = true, isError
	v.judge(now, outcome)
}

// judgeLate judges the endpoint once for not responding in time: retry.per_try_timeout and the
// deadline may both pass. It reports whether the endpoint has been silent.
func (v *visit) judgeLate(now time.Duration) (silent bool) {
	if !v.timedOut {
		v.timedOut = v.ep.TimedOut(now)
		return v.timedOut
	}
	return false
}

// refused tells the endpoint that it did no work for the attempt, which ends with f. A sidecar refuses batch
// requests before others, so that says nothing about its room for these.
func (v *visit) refused(now time.Duration, f *fault.Failure) {
	switch {
	case f.Local():
	case f.NoRoom() && !v.batch:
		v.ep.CountNoRoom(now, v.sent)
	default:
		v.ep.CountNotDone(now, v.sent)
	}
}

// brokenBy returns the outcome of an attempt that ended with f, and without a response.
func brokenBy(f *fault.Failure) stats.AttemptOutcome {
	if f.BlamesEndpoint() {
		return stats.AttemptBroken
	}
	return stats.AttemptNone
}

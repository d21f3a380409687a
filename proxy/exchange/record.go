package exchange

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// result is the end of an exchange for its caller.
type result struct {
	outcome stats.Outcome
	res     *Response      // nil unless it is the application's
	by      *Attempt       // the attempt that res belongs to
	failure *fault.Failure // set if the outcome is OutcomeFailed
}

func (c *result) bytes() int {
	if c.res == nil {
		return 0
	}
	return c.res.size()
}

// conclude counts, logs and traces the end of the exchange for its caller. Without a
// route there is no service to count it for.
func (ex *Exchange) conclude(c *result) {
	o, bytes, now := c.outcome, c.bytes(), ex.shard.Loop.Now()
	latency := now - ex.began
	if ex.copied {
		ex.pool.removeCopy(ex)
	} else {
		if ex.shard.AccessLog.On() {
			ex.log(c, now)
		}
		ex.endSpan(c)
		if o != stats.OutcomeCancelled {
			ex.shard.Milliseconds.Now(now).Answered(latency, bytes)
		}
	}
	if ex.Route == nil {
		return
	}
	s := &ex.Route.Service.stats
	s.Outcomes[o]++
	if ex.batch {
		s.Batch[o]++
	}
	s.BytesOut += uint64(bytes)
	if o != stats.OutcomeCancelled {
		s.Latency.Observe(latency)
	}
}

// log writes the access line. The line of a response that is a stream is written at its end.
func (ex *Exchange) log(c *result, now time.Duration) {
	l := &ex.shard.AccessLog
	id := ex.loggedID()
	streams := c.res != nil && c.res.Source != nil
	if !streams && !l.Keeps(c.outcome.Failed(), now-ex.began, id) {
		return
	}
	r := accesslog.Record{
		Request: accesslog.Request{RequestID: id}, Outcome: c.outcome.String(), BytesIn: int64(ex.size()), BytesOut: int64(c.bytes()),
		Duration: now - ex.began, Queued: ex.queued, Attempts: ex.launched, Hedges: ex.hedges,
	}
	describe(&r, ex.caller, ex)
	r.Time = l.Wall(now - ex.began)
	if ex.Route != nil {
		r.Service = ex.Route.Service.Config.Name
	}
	for i := range ex.attempts[:ex.launched] {
		a := &ex.attempts[i]
		if a.kind == retryAttempt {
			r.Retries++
		}
		if a.ep != nil {
			r.Endpoint = a.ep.Addr
		}
		if a.state == attemptQueued && a.queued.list != nil { // still in the queue
			r.Queued += now - a.queued.since
		}
	}
	r.Fault = ex.Injected.String()
	if c.failure != nil {
		r.Status, r.Error = c.failure.Status, c.failure.Code
	}
	if c.res != nil {
		r.Status = c.res.Status
		r.Endpoint, r.HedgeWon = c.by.ep.Addr, c.by.kind == hedgeAttempt
	}
	if streams {
		r.Stream, r.BytesOut = stats.HandoffAnswer.String(), 0
		c.res.Source.Record = l.Stream(&r)
		return
	}
	l.Add(&r)
}

// LogRefused logs a request that failed with f and never began. ex is nil if none was read.
func LogRefused(l *accesslog.Log, from Caller, ex *Exchange, f *fault.Failure) {
	if !l.On() {
		return
	}
	r := accesslog.Record{Outcome: stats.OutcomeFailed.String(), Status: f.Status, Error: f.Code}
	if ex != nil {
		r.RequestID, r.BytesIn = ex.loggedID(), int64(ex.size())
	}
	if !l.Keeps(true, 0, r.RequestID) {
		return
	}
	describe(&r, from, ex)
	r.Time = l.Wall(0)
	l.Add(&r)
}

// describe fills in the caller and the request. ex may be nil.
func describe(r *accesslog.Record, from Caller, ex *Exchange) {
	at := from.Listener()
	r.Listener, r.Protocol, r.Client = at.Name, at.Protocol, from.RemoteAddr()
	if ex == nil {
		return
	}
	req := &ex.Request
	r.Method, r.Authority, r.Path, r.TraceID = req.Method, req.Authority, req.Path, trace.IDOf(req.Headers)
	r.Headers = req.Headers
	if ex.OriginalPath != nil {
		r.Path = ex.OriginalPath
	}
}

func (ex *Exchange) loggedID() []byte {
	if ex.RequestID != nil {
		return ex.RequestID
	}
	return trace.RequestIDOf(ex.Request.Headers)
}

// LogStream begins the record of a stream that leaves the loop. ex is its request, or
// nil. It returns nil if the access log is off.
func LogStream(l *accesslog.Log, kind string, from Caller, ex *Exchange, service string) *accesslog.StreamRecord {
	if !l.On() {
		return nil
	}
	r := accesslog.Record{Time: l.Wall(0), Stream: kind, Service: service}
	if ex != nil {
		r.RequestID = ex.loggedID()
	}
	describe(&r, from, ex)
	return l.Stream(&r)
}

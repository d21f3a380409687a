package exchange

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// Fallback is the failure that a fallback of the route has answered for. The zero value means none.
type Fallback struct {
	Reason string // of config.FallbackReasons
	Code   string // of the failure; empty means a bad response
}

// result is how an exchange has ended for its caller. It records itself.
type result struct {
	outcome stats.Outcome
	verdict fault.Verdict  // for the breaker
	res     *race.Response // nil unless it is the application's, or an answer of the route
	by      *race.Attempt  // the attempt that res belongs to; nil for an answer of the route
	failure *fault.Failure // set if the outcome is OutcomeFailed

	grpc bool              // the request was a gRPC call
	code protocol.GRPCCode // which ended with this code
}

// readGRPC notes the outcome if the request was a gRPC call that has no response.
func (c *result) readGRPC(req *protocol.Request) {
	switch {
	case !protocol.IsGRPC(req.Headers):
	case c.failure != nil:
		c.grpc, c.code = true, c.failure.GRPC()
	default:
		c.grpc, c.code = true, protocol.GRPCCancelled
	}
}

func (c *result) bytes() int {
	if c.res == nil {
		return 0
	}
	return c.res.Size()
}

// record counts, logs and traces the end of the exchange for its caller. Without a
// route there is no service to count it for.
func (c *result) record(ex *Exchange) {
	o, bytes, now := c.outcome, c.bytes(), ex.shard.Loop.Now()
	latency, measured := now-ex.began, c.measured() && ex.Fallback.Reason == ""
	if c.res != nil {
		c.grpc, c.code = c.res.GRPC, c.res.Code
	} else {
		c.readGRPC(&ex.Request)
	}
	if !ex.copied {
		if ex.shard.AccessLog.On() {
			c.log(ex, now)
		}
		c.endSpan(ex)
		if o != stats.OutcomeCancelled {
			ex.shard.Milliseconds.Now(now).CountResponse(bytes, latency, measured)
		}
	}
	if ex.Route == nil || ex.Route.Service == nil {
		return
	}
	s := ex.Route.Service
	s.Concluded(now, o, bytes, latency, measured)
	if c.grpc {
		s.Stats.GRPC[c.code]++
	}
	if ex.batch {
		s.Stats.Batch[o]++
	}
}

// judge gives a verdict on the request to the breaker of its service, unless the breaker has a verdict already.
func (ex *Exchange) judge(v fault.Verdict) {
	ex.passage.Judge(ex.shard.Loop.Now(), v)
}

// measured reports whether the result has a latency. A failure has none, since a quick one would
// make the service look fast. A timeout has: its caller waited that long.
func (c *result) measured() bool {
	return c.outcome <= stats.Outcome4xx || c.failure == fault.Deadline || c.failure == fault.TryTimeout
}

// log writes the access line. The line of a response that is a stream is written at its end.
func (c *result) log(ex *Exchange, now time.Duration) {
	l := &ex.shard.AccessLog
	id := ex.loggedID()
	streams := c.res != nil && c.res.Source != nil
	if !streams && !l.Keeps(c.outcome.Failed(), now-ex.began, id) {
		return
	}
	r := accesslog.Record{
		Request: accesslog.Request{RequestID: id}, Outcome: c.outcome.String(), BytesIn: int64(ex.size()), BytesOut: int64(c.bytes()),
		Duration: now - ex.began,
	}
	ex.race.Record(&r, c.by, now)
	describe(&r, ex.caller, ex)
	r.Time = l.Wall(now - ex.began)
	if ex.Route != nil {
		r.Service = ex.Route.ServiceName()
	}
	r.Fault, r.Cache = ex.Injected.String(), ex.Cached.String()
	r.Fallback, r.Error = ex.Fallback.Reason, ex.Fallback.Code
	if c.failure != nil {
		r.Status, r.Error = c.failure.Status, c.failure.Code
	}
	if c.res != nil {
		r.Status = c.res.Status
	}
	if c.grpc {
		r.GRPC = c.code.String()
	}
	if streams {
		r.Stream, r.BytesOut = stats.HandoffAnswer.String(), 0
		c.res.Source.Record = l.Stream(&r)
		return
	}
	l.Add(&r)
}

// RecordRefused counts and logs a request that failed with f and never began. ex is nil if none was read.
func RecordRefused(w *shard.Shard, from Caller, ex *Exchange, f *fault.Failure) {
	name, ms := from.Listener().Name, w.Milliseconds.Now(w.Loop.Now())
	w.Stats.CountFailure(name, f)
	w.Stats.CountUnrouted(name)
	size := 0
	if ex != nil {
		size = ex.size()
	}
	ms.CountRequest(size)
	ms.CountResponse(0, 0, false)
	logRefused(&w.AccessLog, from, ex, f)
}

// logRefused writes the access line.
func logRefused(l *accesslog.Log, from Caller, ex *Exchange, f *fault.Failure) {
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

// reportFailure counts the failure that the caller of ex gets, and logs an example.
func (ex *Exchange) reportFailure(f *fault.Failure) {
	from, name := ClientOf(ex.caller), ""
	ex.shard.Stats.CountFailure(from.Listener, f)
	if ex.Route == nil {
		ex.shard.Stats.CountUnrouted(from.Listener)
	} else {
		name = ex.Route.ServiceName()
	}
	shard.LogExample(ex.shard, from, name, ex.Example(), f)
}

// Example returns the example of the request, as the client sent it.
func (m *message) Example() shard.Example {
	e := shard.Example{Method: m.Request.Method, Host: m.Request.Authority, Path: m.Request.Path}
	if m.OriginalPath != nil {
		e.Path = m.OriginalPath
	}
	if m.OriginalHost != nil {
		e.Host = m.OriginalHost
	}
	return e
}

// ClientOf returns the client of a session.
func ClientOf(c Caller) shard.Client {
	return shard.Client{Listener: c.Listener().Name, Addr: c.RemoteAddr()}
}

// Client returns who the request came from. It reads the headers of one that came over a link.
func (ex *Exchange) Client() shard.Client {
	c := ClientOf(ex.caller)
	if ex.caller.Listener().Sidecars {
		c.Behind = forwarded.NearestClient(ex.Request.Headers)
	}
	return c
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
	if ex.OriginalHost != nil {
		r.Authority = ex.OriginalHost
	}
}

func (m *message) loggedID() []byte {
	if m.RequestID != nil {
		return m.RequestID
	}
	return trace.RequestIDOf(m.Request.Headers)
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

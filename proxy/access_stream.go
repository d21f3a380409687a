package proxy

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/accesslog"
	"github.com/remora-proxy/remora/proxy/config"
)

// Trail is what the access log is to tell of a stream once that has ended. It has
// one owner at a time, on any goroutine; the methods of a nil Trail do nothing.
type Trail struct {
	log    *accessLog
	opaque bool // it has no status: nothing is known of it but that it is bytes
	rec    accesslog.Record
}

// StreamEnd is what became of a stream.
type StreamEnd struct {
	Status   int      // of the answer; 0: it has none, or the Trail knows it
	Failure  *Failure // why there was no stream
	Cut      bool     // it ended in a reset
	Endpoint string   // "ip:port"; "": none, or the Trail knows it
	In, Out  int64    // bytes of the bodies, towards the endpoint and from it
}

// streamOpaque is the kind of a stream of which nothing is known but that it is
// bytes.
const streamOpaque = "opaque"

// The outcomes of streams that have no status, and of those that did not come to
// their end.
const (
	outcomeClosed = "closed"
	outcomeCut    = "cut"
)

// opaqueTrail begins the trail of a stream of opaque bytes. Any goroutine may call it.
func (l *accessLog) opaqueTrail(listener, client, service string) *Trail {
	t := l.trail(&accesslog.Record{
		Time: l.wall(0), Listener: listener, Client: client, Service: service,
		Protocol: config.ProtocolTCP, Stream: streamOpaque,
	})
	t.opaque = true
	return t
}

// logStream begins the trail of what leaves the loop, at the request of ex where there
// is one.
func logStream(l *accessLog, kind string, from replier, ex *exchange, service string) *Trail {
	if !l.on() {
		return nil
	}
	r := accesslog.Record{Time: l.wall(0), Stream: kind, Service: service}
	if ex != nil {
		r.RequestID = ex.id()
	}
	describe(&r, from, ex)
	return l.trail(&r)
}

func (l *accessLog) trail(r *accesslog.Record) *Trail {
	t := &Trail{log: l, rec: *r}
	t.rec.Own()
	return t
}

// Asks names the request that the stream is for.
func (t *Trail) Asks(kind StreamKind, req *protocol.Request) {
	if t == nil {
		return
	}
	r := &t.rec
	r.Stream = Departure(kind).String()
	r.Method, r.Authority, r.Path = req.Method, req.Authority, req.Path
	r.RequestID, r.TraceID = requestIDOf(req.Headers), traceID(req.Headers)
	r.Own()
}

// End logs the stream. It is called once.
func (t *Trail) End(e StreamEnd) {
	if t == nil {
		return
	}
	r := &t.rec
	r.BytesIn += e.In
	r.BytesOut += e.Out
	if e.Endpoint != "" {
		r.Endpoint = e.Endpoint
		r.Attempts = max(r.Attempts, 1)
	}
	if e.Status != 0 {
		r.Status = e.Status
	}
	failed := e.Failure != nil
	switch {
	case e.Cut: // of which a failure may be the consequence
		r.Outcome, failed = outcomeCut, false
	case failed:
		r.Outcome, r.Error = OutcomeFailed.String(), e.Failure.Code
		if !t.opaque {
			r.Status = e.Failure.Status
		}
	case r.Status == 0:
		r.Outcome = outcomeClosed
	default:
		o := outcomeOf(r.Status)
		r.Outcome, failed = o.String(), o.failed()
	}
	t.log.loop.Post(func() { t.log.ended(r, failed) })
}

// ended logs a stream unless the log was switched off meanwhile.
func (l *accessLog) ended(r *accesslog.Record, failed bool) {
	if !l.feed.On() {
		return
	}
	if !r.Time.IsZero() {
		r.Duration = max(0, l.wall(0).Sub(r.Time))
	}
	if l.keeps(failed, r.Duration, r.RequestID) {
		l.add(r)
	}
}

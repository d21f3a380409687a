package accesslog

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// StreamRecord is what the access log is to tell of a stream once that has ended. It has
// one owner at a time, on any goroutine; the methods of a nil Trail do nothing.
type StreamRecord struct {
	log    *Log
	opaque bool // it has no status: nothing is known of it but that it is bytes
	rec    Record
}

// StreamEnd is what became of a stream.
type StreamEnd struct {
	Status   int            // of the answer; 0: it has none, or the Trail knows it
	Failure  *fault.Failure // why there was no stream
	Cut      bool           // it ended in a reset
	Endpoint string         // "ip:port"; "": none, or the Trail knows it
	In, Out  int64          // bytes of the bodies, towards the endpoint and from it
}

// StreamOpaque is the kind of a stream of which nothing is known but that it is
// bytes.
const StreamOpaque = "opaque"

// The outcomes of streams that have no status, and of those that did not come to
// their end.
const (
	outcomeClosed = "closed"
	outcomeCut    = "cut"
)

// OpaqueStream begins the trail of a stream of opaque bytes. Any goroutine may call it.
func (l *Log) OpaqueStream(listener, client, service string) *StreamRecord {
	t := l.Stream(&Record{
		Time: l.Wall(0), Listener: listener, Client: client, Service: service,
		Protocol: config.ProtocolTCP, Stream: StreamOpaque,
	})
	t.opaque = true
	return t
}

func (l *Log) Stream(r *Record) *StreamRecord {
	t := &StreamRecord{log: l, rec: *r}
	t.rec.Own()
	return t
}

// SetRequest names the request that the stream is for.
func (t *StreamRecord) SetRequest(kind stats.StreamKind, req *protocol.Request) {
	if t == nil {
		return
	}
	r := &t.rec
	r.Stream = stats.Handoff(kind).String()
	r.Method, r.Authority, r.Path = req.Method, req.Authority, req.Path
	r.RequestID, r.TraceID = trace.RequestIDOf(req.Headers), trace.IDOf(req.Headers)
	r.Own()
}

// End logs the stream. It is called once.
func (t *StreamRecord) End(e StreamEnd) {
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
		r.Outcome, r.Error = stats.OutcomeFailed.String(), e.Failure.Code
		if !t.opaque {
			r.Status = e.Failure.Status
		}
	case r.Status == 0:
		r.Outcome = outcomeClosed
	default:
		o := stats.OutcomeOf(r.Status)
		r.Outcome, failed = o.String(), o.Failed()
	}
	t.log.loop.Post(func() { t.log.ended(r, failed) })
}

// ended logs a stream unless the log was switched off meanwhile.
func (l *Log) ended(r *Record, failed bool) {
	if !l.feed.On() {
		return
	}
	if !r.Time.IsZero() {
		r.Duration = max(0, l.Wall(0).Sub(r.Time))
	}
	if l.Keeps(failed, r.Duration, r.RequestID) {
		l.Add(r)
	}
}

package accesslog

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// StreamRecord collects the access log line of a stream until the stream ends. It has
// one owner at a time, on any goroutine. The methods of a nil StreamRecord do nothing.
type StreamRecord struct {
	log    *Log
	opaque bool // the stream is bytes of an unknown protocol, so it has no status
	rec    Record
}

// StreamEnd is the end of a stream.
type StreamEnd struct {
	Status   int            // of the response; 0 means none, or the one in the record
	Failure  *fault.Failure // why there was no stream; nil means that there was one
	Cut      bool           // it ended in a reset
	Endpoint string         // "ip:port"; empty means none, or the one in the record
	In, Out  int64          // bytes of the bodies, to the endpoint and from it

	GRPC bool // it was a gRPC call, which ended with Code
	Code protocol.GRPCCode
}

// StreamOpaque is the kind of a stream of an unknown protocol.
const StreamOpaque = "opaque"

// The outcomes of streams without a status, and of streams that were reset.
const (
	outcomeClosed = "closed"
	outcomeCut    = "cut"
)

// OpaqueStream begins the record of a stream of an unknown protocol. Any goroutine may call it.
func (l *Log) OpaqueStream(listener, client, service string) *StreamRecord {
	s := l.Stream(&Record{
		Time: l.Wall(0), Listener: listener, Client: client, Service: service,
		Protocol: config.ProtocolTCP, Stream: StreamOpaque,
	})
	s.opaque = true
	return s
}

// Stream begins the record of a stream with a copy of r.
func (l *Log) Stream(r *Record) *StreamRecord {
	s := &StreamRecord{log: l, rec: *r}
	s.rec.Own(l.headers())
	return s
}

// SetRequest sets the request of the stream.
func (s *StreamRecord) SetRequest(kind stats.StreamKind, req *protocol.Request) {
	if s == nil {
		return
	}
	r := &s.rec
	r.Stream = stats.Handoff(kind).String()
	r.Method, r.Authority, r.Path = req.Method, req.Authority, req.Path
	r.RequestID, r.TraceID, r.Headers = trace.RequestIDOf(req.Headers), trace.IDOf(req.Headers), req.Headers
	r.Own(s.log.headers())
}

// End logs the stream. It must be called once.
func (s *StreamRecord) End(e StreamEnd) {
	if s == nil {
		return
	}
	r := &s.rec
	r.BytesIn += e.In
	r.BytesOut += e.Out
	if e.Endpoint != "" {
		r.Endpoint = e.Endpoint
		r.Attempts = max(r.Attempts, 1)
	}
	if e.Status != 0 {
		r.Status = e.Status
	}
	counts := r.Status
	if e.GRPC {
		r.GRPC = e.Code.String()
		if r.Status == 200 {
			counts = fault.StatusOfGRPC(e.Code)
		}
	}
	failed := e.Failure != nil
	switch {
	case e.Cut: // a failure may be its consequence
		r.Outcome, failed = outcomeCut, false
	case failed:
		r.Outcome, r.Error = stats.OutcomeFailed.String(), e.Failure.Code
		if !s.opaque {
			r.Status = e.Failure.Status
		}
	case r.Status == 0:
		r.Outcome = outcomeClosed
	default:
		o := stats.OutcomeOf(counts)
		r.Outcome, failed = o.String(), o.Failed()
	}
	s.log.loop.Post(func() { s.log.ended(r, failed) })
}

// ended logs a stream that has ended, unless the log was switched off meanwhile.
func (l *Log) ended(r *Record, failed bool) {
	if !l.On() {
		return
	}
	if !r.Time.IsZero() {
		r.Duration = max(0, l.Wall(0).Sub(r.Time))
	}
	if l.Keeps(failed, r.Duration, r.RequestID) {
		l.Add(r)
	}
}

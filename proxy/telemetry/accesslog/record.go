package accesslog

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Record describes a request or a stream at its end. The line leaves out empty
// strings, and truncates long ones. The slices are only read.
type Record struct {
	Time     time.Time // when the request was complete; zero if it is not known
	Listener string
	Client   string // "ip:port"
	Protocol string // protocol of the client: http, dubbo, link, tcp
	Stream   string // the kind of stream; empty for a request

	Request

	Service  string
	Endpoint string // "ip:port" of the endpoint that responded, or of the last attempt
	Outcome  string
	Status   int    // sent to the client; 0 means none
	GRPC     string // name of the code that a gRPC call ended with; empty for other requests
	Error    string // stable code, if the sidecar itself made the response, or a fallback did
	Cache    string // what the cache of the route did
	Fault    string // what the route has injected: delay, abort, or both
	Fallback string // the failure for which a fallback of the route answered

	BytesIn, BytesOut int64

	Duration time.Duration
	Queued   time.Duration // waiting for a slot of the application

	Attempts int
	Retries  int // attempts that were retries
	Hedges   int // attempts that were hedges, but for refused ones that cost no token
	HedgeWon bool
}

// Request is the request of a Record.
type Request struct {
	RequestID []byte
	TraceID   []byte
	Method    []byte
	Authority []byte
	Path      []byte
	Headers   []protocol.Header // only those in access_log.format have a place in the line
}

// Own replaces the slices of r by copies, so that r owns its memory. It keeps only the headers
// with these names.
func (r *Record) Own(headers []string) {
	for _, s := range []*[]byte{&r.RequestID, &r.TraceID, &r.Method, &r.Authority, &r.Path} {
		*s = bytes.Clone(*s)
	}
	all := r.Headers
	r.Headers = nil
	for _, name := range headers {
		if value := protocol.Find(all, name); value != nil {
			r.Headers = append(r.Headers, protocol.Header{Name: []byte(name), Value: bytes.Clone(value[:min(len(value), maxName)])})
		}
	}
}

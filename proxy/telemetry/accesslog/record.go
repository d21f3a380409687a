package accesslog

import (
	"bytes"
	"time"
)

// Record is what is known of a request, or of a stream, at its end. Strings that
// are empty are left out of its line, and cut where they are too long. The slices
// are only read.
type Record struct {
	Time     time.Time // when the request was complete; zero: not known
	Listener string
	Client   string // "ip:port"
	Protocol string // as spoken with the client: http, dubbo, link, tcp
	Stream   string // what kind of stream it is; "": none

	RequestID []byte
	TraceID   []byte
	Method    []byte
	Authority []byte
	Path      []byte

	Service  string
	Endpoint string // "ip:port" of the answer, or of the last attempt
	Outcome  string
	Status   int    // towards the client; 0: it got none
	Error    string // stable code, of an answer of the sidecar's own

	BytesIn, BytesOut int64

	Duration time.Duration
	Queued   time.Duration // for a slot of the application

	Attempts int
	Retries  int // of these
	Hedges   int // of these
	HedgeWon bool
}

// Own makes r independent of the memory that its slices alias.
func (r *Record) Own() {
	for _, s := range []*[]byte{&r.RequestID, &r.TraceID, &r.Method, &r.Authority, &r.Path} {
		*s = bytes.Clone(*s)
	}
}

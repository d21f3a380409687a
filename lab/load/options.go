// Package load generates load of HTTP/1.1 and gRPC. In an open loop requests have intended send times that
// do not depend on the responses, and latency counts from those. So a frozen server can't hide
// its freeze by slowing its callers down (coordinated omission).
//
// It uses one goroutine per connection: a reader blocked in the runtime's poller wakes without a
// switch between threads, and the pacer sleeps on a timerfd in that poller (lab/precise).
package load

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Options says what load to make. The zero value of a field means its default.
type Options struct {
	// Targets are called in turn: URLs ("http://127.0.0.1:15001/compute", or https), or "grpc://host:port" for
	// unary gRPC calls over HTTP/2 without TLS, with Body as the message. A method may follow
	// ("/shop.Cart/Get"). Calls share a few connections, and have no nonce.
	Targets []string
	Method  string // of HTTP/1.1; default POST
	Body    []byte // default: 300 bytes of JSON; none for GET and HEAD
	Header  []Header

	TLS *tls.Config // of https; it names the server. Nobody may change it during the run

	// Vary, if set, writes what differs between HTTP/1.1 requests: it appends the field lines
	// and the body of the i-th one, counted from 0 with the warm-up. Header and Body are then
	// unused. One goroutine calls it, at the intended send time.
	Vary func(dst []byte, i int) []byte

	Rate    float64 // of an open loop, in requests per second over all targets
	FanOut  int     // requests of an open loop that are due at once, as the calls of one user are; default 1
	Poisson bool    // exponential gaps instead of equal ones
	Seed    uint64  // of the gaps and nonces

	// Closed makes a closed loop: each connection sends its next request as soon as it has
	// its response. Rate and Poisson are then unused. It sends at least Requests, also after
	// Duration.
	Closed   bool
	Requests int64

	Duration time.Duration // of what is counted; default 10 s
	Warmup   time.Duration // sent before it and not counted
	Timeout  time.Duration // of one request, from its intended send time; default 2 s

	// Connections are opened before the start, spread over the targets. An open loop opens
	// more if all are busy, up to MaxConnections; then requests wait. Defaults: 64 and 1,024.
	Connections    int
	MaxConnections int

	NoNonce bool // the servers do not send x-nonce back
	Samples bool // keep the latency of each of the first maxSamples requests

	// Log, if set, gets a line for each counted request when it ends: the intended send time in
	// microseconds of Unix time, the latency in microseconds, the status (0 means no response),
	// the ErrorKind and the value of x-remora-error (- means none), the nonce in hex, and the
	// microseconds from the intended send time until it was written (-1 means never). A response
	// that no request awaits gets a line, too, of the kind ErrStray. Write is not called
	// concurrently; its errors are ignored.
	Log io.Writer

	// Each, if set, gets each counted request when it ends. Calls are not concurrent.
	Each func(End)

	// Progress, if set, is called about five times a second by one goroutine.
	Progress func(Progress)
}

const maxFanOut = 1000

// Sample is a request whose latency was counted.
type Sample struct {
	Due     time.Time // intended send time
	Latency time.Duration
}

const maxSamples = 1 << 23

// End is how a request ended.
type End struct {
	Index   int       // as Vary counts; -1 in a closed loop
	Due     time.Time // intended send time
	Latency time.Duration
	Kind    ErrorKind // "" means success
}

// Header is a field line of each request.
type Header struct{ Name, Value string }

// Progress is the state of a running load.
type Progress struct {
	Elapsed  time.Duration // since the end of the warm-up; negative during it
	Requests int64         // with a response or failed, and counted
	Errors   int64
	P50, P99 time.Duration // of all counted requests so far
	Max      time.Duration
}

func (o Options) withDefaults() (Options, error) {
	o.Method = cmp.Or(o.Method, "POST")
	if o.Body == nil && o.Method != "GET" && o.Method != "HEAD" {
		o.Body = defaultBody
	}
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.FanOut = cmp.Or(o.FanOut, 1)
	o.Connections = cmp.Or(o.Connections, 64)
	o.MaxConnections = max(cmp.Or(o.MaxConnections, 1024), o.Connections)
	switch {
	case len(o.Targets) == 0:
		return o, errors.New("load: no target")
	case !o.Closed && (o.Rate <= 0 || o.Rate > 1e6):
		return o, fmt.Errorf("load: a rate of %v requests/s: want one in (0, 1e6]", o.Rate)
	case o.Requests < 0 || o.Requests > 0 && !o.Closed:
		return o, errors.New("load: a count of requests is for a closed loop")
	case o.FanOut < 0 || o.FanOut > maxFanOut || o.Closed && (o.FanOut > 1 || o.Vary != nil):
		return o, fmt.Errorf("load: a fan-out of %d: want 1 to %d; a closed loop has none, and equal requests", o.FanOut, maxFanOut)
	case o.Duration < 0 || o.Warmup < 0 || o.Timeout < 0 || o.Connections < 0:
		return o, errors.New("load: times and counts must not be negative")
	case o.Connections < len(o.Targets):
		return o, fmt.Errorf("load: %d connections can't reach %d targets", o.Connections, len(o.Targets))
	}
	return o, nil
}

// defaultBody is a JSON object of 300 bytes.
var defaultBody = fmt.Appendf(nil, `{"op":"compute","keys":"%.274s"}`, strings.Repeat("0123456789abcdef", 18))

package trace

import (
	"math/rand/v2"

	"github.com/remora-proxy/remora/proxy/config"
)

// Sink takes the records of sampled requests. proxy/telemetry/otlp implements it.
type Sink interface {
	// Put owns r. Loops call it, so it must not block: it drops r if it has no room.
	Put(r *Record)
}

// Sampler decides which requests one loop samples, and makes ids.
type Sampler struct {
	On    bool     // tracing is configured
	share uint64   // of the requests that arrive without a trace, in 1/2^shareBits
	Rand  rand.PCG // set by the owner before the first use
}

const shareBits = 53 // the precision of a float64 between 0 and 1

// Configure sets whether tracing is on, and the share of requests to sample.
func (s *Sampler) Configure(c *config.Tracing) {
	s.On, s.share = c.Endpoint != "", uint64(c.Sample*(1<<shareBits))
}

// Draw reports at random whether a request without a trace is sampled.
func (s *Sampler) Draw() bool { return s.Rand.Uint64()>>(64-shareBits) < s.share }

// NewSpanID returns a random id.
func (s *Sampler) NewSpanID() (id SpanID) {
	s.fill(id[:])
	return id
}

// NewTraceID returns a random id.
func (s *Sampler) NewTraceID() (id TraceID) {
	s.fill(id[:8])
	s.fill(id[8:])
	return id
}

// fill fills eight bytes at random. They are never all 0, which would be no valid id.
func (s *Sampler) fill(b []byte) {
	x := s.Rand.Uint64() | 1
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

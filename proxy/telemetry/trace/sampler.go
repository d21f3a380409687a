package trace

import (
	"math/rand/v2"

	"github.com/remora-proxy/remora/proxy/config"
)

// Sink takes the records of sampled requests. proxy/otlp implements it.
type Sink interface {
	// Put takes r over. Loops call it, so it does not block: what there is no
	// room for is dropped.
	Put(r *Record)
}

// Sampler decides which requests are sampled on one loop, and makes ids.
type Sampler struct {
	On    bool
	share uint64 // of 2^shareBits, of the requests that come without a trace
	Rand  rand.PCG
}

const shareBits = 53 // what a float64 between 0 and 1 is precise to

func (t *Sampler) Configure(c *config.Tracing) {
	t.On, t.share = c.Endpoint != "", uint64(c.Sample*(1<<shareBits))
}

func (t *Sampler) Draw() bool { return t.Rand.Uint64()>>(64-shareBits) < t.share }

func (t *Sampler) NewSpanID() (id SpanID) {
	t.fill(id[:])
	return id
}

func (t *Sampler) NewTraceID() (id TraceID) {
	t.fill(id[:8])
	t.fill(id[8:])
	return id
}

// fill fills eight bytes at random, but not all with 0: that would be no id.
func (t *Sampler) fill(b []byte) {
	x := t.Rand.Uint64() | 1
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

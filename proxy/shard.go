package proxy

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// shard is what one loop lends to those who work on it: the loop itself, its
// counters, its scratch memory, and the limits in force. It belongs to that loop
// alone, so nothing in it is locked.
type shard struct {
	loop    Loop
	stats   WorkerStats
	scratch []byte // for encoding; valid within one callback
	buffers protocol.Buffers

	// By the configuration in use.
	cfg        *config.Config
	httpLimits *protocol.Limits
	noLimit    *protocol.Limits // httpLimits for bodies of any length

	shared   *shared
	index    int           // among the shards of the process
	sessions int           // downstream connections
	log      *quietLog     // of what peers do
	rnd      *rand.PCG     // for picks
	ids      rand.PCG      // for the ids of requests; apart from rnd, whose order tests replay
	millis   *milliseconds // apart, since the collector need not look into it
	tracer   tracer
	access   accessLog
	date     dateCache

	uncounted int64 // bytes held that the budget does not know of yet
	overMark  Flush // runs when the hard mark is passed
	trimmer   Timer // armed while buffers keeps something
}

// shared is what the shards of one process share. Its fields are set before the first
// connection, or atomic.
type shared struct {
	budget   budget
	draining atomic.Bool
	links    atomic.Int32 // accepted ones that may carry requests
	loops    int
	streams  bool             // something carries streams
	wall     func() time.Time // the time of day; nil: there is none
	spans    Spans            // takes the records of sampled requests; nil: none are made
}

// now is the time of day, or zero when the process has no clock.
func (s *shared) now() (t time.Time) {
	if s.wall != nil {
		t = s.wall()
	}
	return t
}

// newShard makes the shard of a loop. seed feeds the picks of endpoints.
func newShard(of *shared, index int, loop Loop, log Logger, seed uint64) *shard {
	s := &shard{
		shared: of, index: index, loop: loop, log: newQuietLog(log, loop),
		rnd:    rand.NewPCG(seed, uint64(index)),
		ids:    *rand.NewPCG(uint64(index), seed),
		millis: new(milliseconds),
	}
	s.tracer.rnd = *rand.NewPCG(^seed, uint64(index))
	s.initBuffers()
	s.access.init(loop, of.now, &s.ids)
	return s
}

// maxScratch bounds the encoding buffer that a shard keeps between callbacks.
const maxScratch = 256 << 10

// keepScratch takes the encoding buffer back after it may have grown.
func (s *shard) keepScratch(b []byte) {
	s.scratch = nil
	if cap(b) <= maxScratch {
		s.scratch = b[:0]
	}
}

// configure sets the limits of messages. They are replaced, not changed: a message
// that is being received keeps the ones it began with.
func (s *shard) configure(cfg *config.Config) {
	s.cfg = cfg
	lim := &cfg.Limits
	s.httpLimits = &protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: lim.Message}
	noLimit := *s.httpLimits
	noLimit.Message = protocol.NoLimit
	s.noLimit = &noLimit
	s.boundBuffers()
	s.tracer.configure(&cfg.Tracing)
}

// bodyLimits are those of a body that is received: of any length where it can
// leave the loop when it has become too long for a message.
func (s *shard) bodyLimits() *protocol.Limits {
	if s.shared.streams {
		return s.noLimit
	}
	return s.httpLimits
}

package shard

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// Shard is what one loop lends to those who work on it: the loop itself, its
// counters, its scratch memory, and the limits in force. It belongs to that loop
// alone, so nothing in it is locked.
type Shard struct {
	Loop    loop.Loop
	Stats   stats.WorkerStats
	Scratch []byte // for encoding; valid within one callback
	Buffers protocol.Buffers

	// By the configuration in use.
	Config        *config.Config
	MessageLimits *protocol.Limits
	UnlimitedBody *protocol.Limits // MessageLimits for bodies of any length

	Process      *Process
	Index        int                    // among the shards of the process
	Sessions     int                    // downstream connections
	Log          *LimitedLogger         // of what peers do
	Rand         *rand.PCG              // for picks
	IDs          rand.PCG               // for the ids of requests; apart from rnd, whose order tests replay
	Milliseconds *stats.MillisecondRing // apart, since the collector need not look into it
	Sampler      trace.Sampler
	AccessLog    accesslog.Log
	date         dateCache

	Uncounted int64      // bytes held that the budget does not know of yet
	Shedding  loop.Flush // runs when the hard mark is passed
	trimmer   loop.Timer // armed while buffers keeps something
}

// Process is what the shards of one process share. Its fields are set before the first
// connection, or atomic.
type Process struct {
	Budget    budget
	Draining  atomic.Bool
	Links     atomic.Int32 // accepted ones that may carry requests
	Loops     int
	Streams   bool             // something carries streams
	WallClock func() time.Time // the time of day; nil: there is none
	Sink      trace.Sink       // takes the records of sampled requests; nil: none are made
}

// Now is the time of day, or zero when the process has no clock.
func (s *Process) Now() (t time.Time) {
	if s.WallClock != nil {
		t = s.WallClock()
	}
	return t
}

// New makes the shard of a loop. seed feeds the picks of endpoints.
func New(of *Process, index int, loop loop.Loop, log Logger, seed uint64) *Shard {
	s := &Shard{
		Process: of, Index: index, Loop: loop, Log: newLimitedLogger(log, loop),
		Rand:         rand.NewPCG(seed, uint64(index)),
		IDs:          *rand.NewPCG(uint64(index), seed),
		Milliseconds: new(stats.MillisecondRing),
	}
	s.Sampler.Rand = *rand.NewPCG(^seed, uint64(index))
	s.initBuffers()
	s.AccessLog.Init(loop, of.Now, &s.IDs)
	return s
}

// maxScratch bounds the encoding buffer that a shard keeps between callbacks.
const maxScratch = 256 << 10

// KeepScratch takes the encoding buffer back after it may have grown.
func (s *Shard) KeepScratch(b []byte) {
	s.Scratch = nil
	if cap(b) <= maxScratch {
		s.Scratch = b[:0]
	}
}

// Configure sets the limits of messages. They are replaced, not changed: a message
// that is being received keeps the ones it began with.
func (s *Shard) Configure(cfg *config.Config) {
	s.Config = cfg
	lim := &cfg.Limits
	s.MessageLimits = &protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: lim.Message}
	noLimit := *s.MessageLimits
	noLimit.Message = protocol.NoLimit
	s.UnlimitedBody = &noLimit
	s.boundBuffers()
	s.Sampler.Configure(&cfg.Tracing)
}

// BodyLimits are those of a body that is received: of any length where it can
// leave the loop when it has become too long for a message.
func (s *Shard) BodyLimits() *protocol.Limits {
	if s.Process.Streams {
		return s.UnlimitedBody
	}
	return s.MessageLimits
}

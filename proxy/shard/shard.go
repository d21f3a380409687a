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

// Shard is one loop's part of the process. Only that loop uses it, so it has no locks.
type Shard struct {
	Loop  loop.Loop
	Stats stats.WorkerStats
	output
	Decoded protocol.Scratch // for decoding; valid within one callback
	Buffers protocol.Buffers

	// From the configuration in use.
	Config        *config.Config
	MessageLimits *protocol.Limits
	UnlimitedBody *protocol.Limits // MessageLimits for bodies of any length
	Via           bool             // messages that are passed on get Via

	Process      *Process
	Index        int                    // among the shards of the process
	Log          *LimitedLogger         // for events that peers cause
	Rand         *rand.PCG              // picks endpoints and targets of splits
	IDs          rand.PCG               // makes the ids of requests; not Rand, whose order tests replay
	Milliseconds *stats.MillisecondRing // a pointer, so that the garbage collector need not scan it
	Watched      int                    // services that have milliseconds of their own
	Sampler      trace.Sampler
	AccessLog    accesslog.Log
	date         dateCache

	Uncounted int64      // bytes held that Process.Budget does not include yet
	Shedding  loop.Flush // deferred when the hard mark is reached
	Tables    Tables
	bounds    bufferBounds
	backlogs  backlogs
}

// Process is what all shards share. Its fields are atomic, or set before the first connection.
type Process struct {
	Budget    budget
	Draining  atomic.Bool
	Links     atomic.Int32 // accepted links that may carry requests
	Sessions  atomic.Int64 // downstream connections
	Loops     int
	Streams   bool             // the process can carry streams
	PipeMaker PipeMaker        // nil without streams
	WallClock func() time.Time // the time of day; nil means that there is no clock
	Sink      trace.Sink       // takes the records of sampled requests; nil means that none is made

	invalidated atomic.Pointer[Stamps] // nil until a cache asks for it

	// Overloaded reports whether the process runs out of a resource; nil means that nobody knows.
	Overloaded func() bool
}

// PipeMaker makes a pipe of loop l to the peer at remote (Conn.RemoteAddr). ready is called on the
// loop, see loop.Pipe. The caller calls Close of the Pipe, and passes the Socket on or resets it.
type PipeMaker func(l loop.Loop, remote string, ready func()) (loop.Pipe, loop.Socket)

// NewPipe returns a pipe of the shard's loop. Process.Streams must be true.
func (s *Shard) NewPipe(remote string, ready func()) (loop.Pipe, loop.Socket) {
	return s.Process.PipeMaker(s.Loop, remote, ready)
}

// RefusesBatch reports whether batch requests must be refused: half of limits.buffered is reached
// without the own bytes that the caller has counted, or the process runs out of a resource.
func (s *Process) RefusesBatch(own int) bool {
	return 2*s.Budget.without(own) >= s.Budget.limit.Load() || s.Overloaded != nil && s.Overloaded()
}

// Now returns the time of day, or the zero time if the process has no clock.
func (s *Process) Now() (t time.Time) {
	if s.WallClock != nil {
		t = s.WallClock()
	}
	return t
}

// New returns the shard of a loop, the index-th of process. seed seeds its random numbers.
func New(process *Process, index int, loop loop.Loop, log Logger, seed uint64) *Shard {
	s := &Shard{
		Process: process, Index: index, Loop: loop, Log: newLimitedLogger(log, loop),
		Rand:         rand.NewPCG(seed, uint64(index)),
		IDs:          *rand.NewPCG(uint64(index), seed),
		Milliseconds: new(stats.MillisecondRing),
	}
	s.Sampler.Rand = *rand.NewPCG(^seed, uint64(index))
	s.initBuffers()
	s.backlogs.timer.Fire = s.checkBacklogs
	s.AccessLog.Init(loop, process.Now, &s.IDs)
	return s
}

// Draw reports whether a request is one of a share of all, at random.
func (s *Shard) Draw(share float64) bool { return float64(s.Rand.Uint64()>>11)/(1<<53) < share }

// maxScratch bounds the encoding buffer that a shard keeps between callbacks.
const maxScratch = 256 << 10

// output is memory for what a callback sends, valid within that.
type output struct {
	Scratch []byte   // for encoding
	Parts   [][]byte // for Outbound.WriteParts
}

// KeepScratch takes the encoding buffer back after it may have grown.
func (o *output) KeepScratch(b []byte) {
	o.Scratch = nil
	if cap(b) <= maxScratch {
		o.Scratch = b[:0]
	}
}

// maxParts bounds the Parts that a shard keeps between callbacks.
const maxParts = 256

// KeepParts takes Parts back after it may have grown, and drops the references in it.
func (o *output) KeepParts(parts [][]byte) {
	o.Parts = nil
	if cap(parts) <= maxParts {
		clear(parts)
		o.Parts = parts[:0]
	}
}

// Configure sets the configuration in use. It replaces the limits of messages and does
// not change them: a message that is being received keeps those it began with.
func (s *Shard) Configure(cfg *config.Config) {
	s.Config = cfg
	lim := &cfg.Limits
	s.MessageLimits = &protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: lim.Message}
	noLimit := *s.MessageLimits
	noLimit.Message = protocol.NoLimit
	s.UnlimitedBody = &noLimit
	s.Via = cfg.Via == config.ViaOn
	s.boundBuffers()
	s.Tables.configure(lim, s.Process.Loops)
	s.Sampler.Configure(&cfg.Tracing)
}

// BodyLimits returns the limits of a body that is received. Its length has no limit if
// a body too long for a message can leave the loop as a stream.
func (s *Shard) BodyLimits() *protocol.Limits {
	if s.Process.Streams {
		return s.UnlimitedBody
	}
	return s.MessageLimits
}

package accesslog

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Log is the access log of one loop. Only that loop uses it, except for OpaqueStream,
// Stream and Wall.
type Log struct {
	loop  loop.Loop
	now   func() time.Time // the time of day; the zero time if the process has no clock
	rnd   *rand.PCG        // samples requests without an id
	rules *config.AccessLog
	flush loop.Timer
	lines atomic.Pointer[format] // of Feed, for streams on other goroutines; nil means JSON
	Feed
}

// flushAfter is how long a line may wait for others that are written with it.
const flushAfter = 100 * time.Millisecond

// Init prepares l for a loop. now returns the time of day; rnd samples requests without an id.
func (l *Log) Init(loop loop.Loop, now func() time.Time, rnd *rand.PCG) {
	l.loop, l.now, l.rnd = loop, now, rnd
	l.flush.Fire = l.Flush
}

// Configure sets the rules and the queue of the lines. A nil queue means no access log.
func (l *Log) Configure(rules *config.AccessLog, lines *Queue) {
	l.rules = rules
	l.Use(lines)
	l.enc.format = newFormat(rules)
	l.lines.Store(l.enc.format)
}

// Add writes the line of r within flushAfter.
func (l *Log) Add(r *Record) {
	if l.Feed.Add(r) {
		l.loop.After(flushAfter, &l.flush)
	}
}

// Wall returns the time of day so long ago, or the zero time if the process has no clock.
func (l *Log) Wall(ago time.Duration) (t time.Time) {
	if t = l.now(); !t.IsZero() {
		t = t.Add(-ago)
	}
	return t
}

// Keeps reports whether a request with this outcome, duration and id gets a line. The id
// decides about sampling, so that all sidecars of a request log the same requests.
func (l *Log) Keeps(failed bool, took time.Duration, id []byte) bool {
	c := l.rules
	switch {
	case c.Sample == 1, c.Failed && failed, c.Slow > 0 && took >= c.Slow:
		return true
	case c.Sample == 0:
		return false
	case len(id) == 0:
		return fractionOf(l.rnd.Uint64()) < c.Sample
	}
	return fractionOf(hash(id)) < c.Sample
}

// headers returns the names of the headers that a line has. Any goroutine may call it.
func (l *Log) headers() []string {
	if f := l.lines.Load(); f != nil {
		return f.headers
	}
	return nil
}

// fractionOf spreads random bits over [0, 1).
func fractionOf(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// hash takes eight bytes at a time, because it runs for every request. Most ids have 32 bytes.
func hash(b []byte) uint64 {
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h ^ binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = fold(h ^ uint64(c))
	}
	return fold(h) // once more, since ids may differ only in their last digit
}

// fold mixes the bits of x: it combines both halves of a product of 128 bits.
func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

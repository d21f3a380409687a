package accesslog

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Log is one loop's part of the access log.
type Log struct {
	loop  loop.Loop
	now   func() time.Time // the time of day; zero where there is none
	rnd   *rand.PCG        // samples what has no id
	rules *config.AccessLog
	feed  Feed
	flush loop.Timer
}

// flushAfter is how long a line waits for others to be written with.
const flushAfter = 100 * time.Millisecond

func (l *Log) Init(loop loop.Loop, now func() time.Time, rnd *rand.PCG) {
	l.loop, l.now, l.rnd = loop, now, rnd
	l.flush.Fire = l.feed.Flush
}

// Configure logs by rules to lines from now on; nil: nothing.
func (l *Log) Configure(rules *config.AccessLog, lines *Queue) {
	l.rules = rules
	l.feed.Use(lines)
}

// On reports whether lines are written.
func (l *Log) On() bool { return l.feed.On() }

// FlushNow hands on the lines that wait.
func (l *Log) FlushNow() { l.feed.Flush() }

// Add writes the line of r, with others in a moment.
func (l *Log) Add(r *Record) {
	if l.feed.Add(r) {
		l.loop.After(flushAfter, &l.flush)
	}
}

// Wall is the time of day so long ago, or zero when the process has no clock.
func (l *Log) Wall(ago time.Duration) (t time.Time) {
	if t = l.now(); !t.IsZero() {
		t = t.Add(-ago)
	}
	return t
}

// Keeps tells whether there is to be a line. Which requests are sampled hangs on
// their ids, so that the sidecars on a request's way log the same ones.
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

// fractionOf spreads random bits over [0, 1).
func fractionOf(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// hash takes eight bytes at a time, for that is done to every request: ids are 32
// bytes, mostly.
func hash(b []byte) uint64 {
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h ^ binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = fold(h ^ uint64(c))
	}
	return fold(h) // once more: ids may differ in their last digit alone
}

// fold has each bit of x count for all bits: both halves of a product of 128.
func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

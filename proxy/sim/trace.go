package sim

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// noteKind is the kind of a line of the trace.
type noteKind uint8

const (
	evkOpen noteKind = iota
	evkData
	evkClose
	evkTimer
	evkFlush
	evkPost
	evkDial
	evkScript
	evkFault
)

var noteNames = [...]string{"open", "data", "close", "timer", "flush", "post", "dial", "script", "fault"}

// note is one line of the trace.
type note struct {
	at   time.Duration
	kind noteKind
	loop *Loop
	conn uint32
	n    int
}

// trace is the events of a run: a hash of all, and the last of them for a test that fails.
type trace struct {
	clock *clock
	hash  uint64
	keep  bool
	ring  []note
	next  int
	full  bool
}

// traceLength is the number of events that a failed test prints.
const traceLength = 4096

func (t *trace) note(kind noteKind, l *Loop, c *conn, n int) {
	loop, id := -1, uint32(0)
	if l != nil {
		loop = l.id
	}
	if c != nil {
		id = c.id
	}
	x := uint64(t.clock.now) ^ uint64(kind)<<56 ^ uint64(loop+1)<<40 ^ uint64(id)<<20 ^ uint64(n)
	hi, lo := bits.Mul64(t.hash^x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	t.hash = hi ^ lo
	if t.keep {
		t.ring[t.next] = note{t.clock.now, kind, l, id, n}
		t.next++
		if t.next == len(t.ring) {
			t.next, t.full = 0, true
		}
	}
}

// Hash returns a hash of all events so far. Two runs have different hashes if they differ
// in anything that a Receiver, a Timer or a Flush can observe.
func (w *World) Hash() uint64 { return w.trace.hash }

// Reporter is the part of testing.TB that OnFailure needs.
type Reporter interface {
	Helper()
	Failed() bool
	Logf(format string, args ...any)
	Cleanup(f func())
}

// OnFailure makes the world keep a trace, and print its seed and the last events if the
// test fails.
func (w *World) OnFailure(t Reporter) {
	w.trace.keep, w.trace.ring = true, make([]note, traceLength)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sim: seed %d, hash %016x, ended at %v\n%s", w.seed, w.Hash(), w.clock.now, &w.trace)
		}
	})
}

// String returns the last events, one per line: time, loop, kind, connection, and for data
// the number of bytes. It is empty without OnFailure.
func (t *trace) String() string {
	lines := t.ring[:t.next]
	var b strings.Builder
	if t.full {
		for _, n := range t.ring[t.next:] {
			n.print(&b)
		}
	}
	for _, n := range lines {
		n.print(&b)
	}
	return b.String()
}

func (n *note) print(b *strings.Builder) {
	name := "-"
	if n.loop != nil {
		name = n.loop.name
	}
	fmt.Fprintf(b, "%12v %-12s %-6s", n.at, name, noteNames[n.kind])
	if n.conn != 0 {
		fmt.Fprintf(b, " conn=%d", n.conn)
	}
	if n.kind == evkData {
		fmt.Fprintf(b, " bytes=%d", n.n)
	}
	b.WriteByte('\n')
}

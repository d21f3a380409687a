package shard

import (
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

// turn is a loop whose turns a test ends. Its timers do not fire.
type turn struct {
	stopped
	flushes loop.Flushes
	armed   int // how often a timer was armed
}

func (l *turn) Defer(f *loop.Flush)              { l.flushes.Add(f) }
func (l *turn) After(time.Duration, *loop.Timer) { l.armed++ }

func (l *turn) end() {
	for _, f := range l.flushes.Take() {
		f.Do()
	}
}

// newShard returns the shard of one of so many loops, under limits.
func newShard(loops int, lim config.Limits) (*Shard, *turn) {
	l := &turn{}
	s := New(&Process{Loops: loops}, 0, l, nil, 1)
	s.Process.Budget.Configure(&lim)
	s.Configure(&config.Config{Limits: lim})
	return s, l
}

const mib = 1 << 20

// TestBudgetMarks: the hard mark is above the limit by a quarter of that, and by at least four messages.
func TestBudgetMarks(t *testing.T) {
	for _, c := range []struct{ limit, message, hard int64 }{{64 * mib, mib, 80 * mib}, {8 * mib, mib, 12 * mib}} {
		var b budget
		b.Configure(&config.Limits{Buffered: c.limit, Message: c.message})
		if b.hard.Load() != c.hard || b.margin() != c.hard-c.limit {
			t.Errorf("limit %d, messages of %d: hard mark %d", c.limit, c.message, b.hard.Load())
		}
		const own = 1000
		for held, full := range map[int64]bool{c.limit + own - 1: false, c.limit + own: true} {
			b.bytes.Store(held)
			if b.Full(own) != full || b.Held() != held {
				t.Errorf("limit %d, %d held: full %t", c.limit, held, !full)
			}
		}
		for held, over := range map[int64]bool{c.hard - own - 1: false, c.hard - own: true} {
			b.bytes.Store(held)
			if b.overHardMark(own) != over {
				t.Errorf("hard mark %d, %d held: over it %t", c.hard, held, !over)
			}
		}
	}
}

// TestRelieved: connections are closed at the hard mark, until an eighth of the room between the marks is free.
func TestRelieved(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: 64 * mib, Message: mib})
	for held, want := range map[int64]struct{ over, relieved bool }{
		80*mib - 1: {over: true}, 80*mib - 2: {}, 78*mib - 1: {}, 78*mib - 2: {relieved: true},
	} {
		s.Process.Budget.bytes.Store(held)
		s.Uncounted = 1
		if s.OverBudget() != want.over || s.Relieved() != want.relieved {
			t.Errorf("%d held: over budget %t, relieved %t", held, s.OverBudget(), s.Relieved())
		}
	}
	s.Process.Sessions.Store(16)
	if s.Share() != mib || s.ShareOfAll() != 5*mib {
		t.Errorf("each of 16 connections has a share of %d, and %d of all", s.Share(), s.ShareOfAll())
	}
}

// TestCharge: a loop updates the budget each 64 KiB, and sheds if the hard mark is reached while it takes memory.
func TestCharge(t *testing.T) {
	s, l := newShard(1, config.Limits{Buffered: mib, Message: mib})
	shed := 0
	s.Shedding.Do = func() { shed++ }
	const hard = 5 * mib
	counted := 0
	for _, step := range []struct{ held, counted, shed int }{
		{chargeStep - 1, 0, 0}, {chargeStep - 1, 0, 0}, {chargeStep, chargeStep, 0}, {1, chargeStep, 0}, {0, 0, 0},
		{hard - 1, hard - 1, 0}, {hard, hard - 1, 0}, {hard + chargeStep - 1, hard + chargeStep - 1, 1}, {hard, hard + chargeStep - 1, 1},
		{hard - 1, hard - 1, 1}, {0, 0, 1}, {hard, hard, 2}, {hard + 2*chargeStep, hard + 2*chargeStep, 3}, {hard + chargeStep, hard + chargeStep, 3},
	} {
		s.Recount(&counted, step.held)
		l.end()
		if n := s.Process.Budget.Held(); counted != step.held || n != int64(step.counted) || n+s.Uncounted != int64(step.held) || shed != step.shed {
			t.Errorf("%+v: %d in the budget, %d not, shed %d times", step, n, s.Uncounted, shed)
		}
	}
}

// TestRefusesBatch: batch requests are refused from half of the limit on, or if the process runs out of a resource.
func TestRefusesBatch(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: 2 * mib, Message: mib})
	p, overloaded := s.Process, false
	const own = 1000
	for held, want := range map[int64]bool{mib + own - 1: false, mib + own: true} {
		p.Budget.bytes.Store(held)
		p.Overloaded = nil
		if p.RefusesBatch(own) != want {
			t.Errorf("%d held: refuses %t", held, !want)
		}
		p.Overloaded = func() bool { return overloaded }
		for _, overloaded = range []bool{false, true} {
			if got := p.RefusesBatch(own); got != (want || overloaded) {
				t.Errorf("%d held, overloaded %t: refuses %t", held, overloaded, got)
			}
		}
	}
}

// TestAhead: loops reserve memory ahead in equal parts of a quarter of the limit, of which nothing is left once that is
// held. They keep unused buffers in equal parts of an eighth.
func TestAhead(t *testing.T) {
	s, l := newShard(2, config.Limits{Buffered: 64 * mib, Message: mib})
	if s.Buffers.Ahead != 8*mib || s.Buffers.Most != 4*mib {
		t.Errorf("at first %d may be reserved, %d kept", s.Buffers.Ahead, s.Buffers.Most)
	}
	other, _ := newShard(1, config.Limits{Buffered: 1024 * mib, Message: mib})
	if other.Buffers.Most != maxKept {
		t.Errorf("%d may be kept of much", other.Buffers.Most)
	}
	other.Process.Budget.bytes.Store(1024 * mib)
	if other.boundAhead(); other.Buffers.Ahead != 0 {
		t.Errorf("%d may be reserved of nothing", other.Buffers.Ahead)
	}
	counted := 0
	s.Buffers.Ahead -= 2 * mib // for a message, which is charged soon
	if s.Recount(&counted, 4*mib); s.Buffers.Ahead != 6*mib {
		t.Errorf("%d may be reserved in the middle of a turn", s.Buffers.Ahead)
	}
	if s.Recount(&counted, 6*mib); s.Buffers.Ahead != 5*mib {
		t.Errorf("%d may be reserved with 6 MiB held", s.Buffers.Ahead)
	}
	if s.Recount(&counted, 4*mib+1); s.Buffers.Ahead != 5*mib {
		t.Errorf("%d may be reserved after less is held in the middle of a turn", s.Buffers.Ahead)
	}
	if l.end(); s.Buffers.Ahead != 6*mib-1 {
		t.Errorf("%d may be reserved at the end of the turn", s.Buffers.Ahead)
	}
	s.Buffers.Ahead = s.bounds.low + 1
	if s.Recount(&counted, 4*mib); s.Buffers.Ahead != s.bounds.low+1 {
		t.Error("a small change is refilled for, and much is left")
	}
	if l.end(); s.Buffers.Ahead != s.bounds.low+1 || s.bounds.low != 3*mib-1 {
		t.Errorf("%d may be reserved, the low mark is %d", s.Buffers.Ahead, s.bounds.low)
	}
	s.Buffers.Ahead = s.bounds.low
	s.Recount(&counted, 4*mib+2)
	if l.end(); s.Buffers.Ahead != 6*mib-1 {
		t.Errorf("%d may be reserved after little was left", s.Buffers.Ahead)
	}
	s.Recount(&counted, 20*mib)
	if l.end(); s.Buffers.Ahead != 0 || s.bounds.low != chargeStep {
		t.Errorf("%d may be reserved with 20 MiB held, the low mark is %d", s.Buffers.Ahead, s.bounds.low)
	}
}

// TestTables: idle connections close once the tables of a loop reach its part of half of the limit, until a quarter is
// free. If busy ones keep more, those that are idle close again after some growth.
func TestTables(t *testing.T) {
	s, _ := newShard(2, config.Limits{Buffered: 16 * mib, Message: mib})
	if s.Tables.Full() {
		t.Error("full without tables")
	}
	var a TableAccount
	set := func(tables int) {
		t.Helper()
		a.Count(s, 7, tables)
		if held := s.Process.Budget.Held() + s.Uncounted; held != int64(tables+7) || a.Tables() != tables || a.Messages() != 7 || s.Tables.Bytes() != tables {
			t.Errorf("%d bytes of tables: %d held, %d of this connection, %d of all", tables, held, a.Tables(), s.Tables.Bytes())
		}
	}
	for _, c := range []struct {
		tables     int
		full, over bool
	}{
		{3 * mib, false, false}, {3*mib + 1, false, true}, {4*mib - 1, false, true}, {4 * mib, true, true},
	} {
		if set(c.tables); s.Tables.Full() != c.full || s.Tables.Over() != c.over {
			t.Errorf("%+v: full %t, over %t", c, s.Tables.Full(), s.Tables.Over())
		}
	}
	set(5 * mib) // of connections that are busy
	s.Tables.Reclaimed()
	for tables, full := range map[int]bool{5*mib + chargeStep - 1: false, 5*mib + chargeStep: true} {
		if set(tables); s.Tables.Full() != full {
			t.Errorf("%d bytes of tables of busy connections: full %t", tables, !full)
		}
	}
	set(4 * mib) // not below the limit
	if s.Tables.Full() {
		t.Error("full again without growth")
	}
	set(4*mib - 1)
	if set(4 * mib); !s.Tables.Full() {
		t.Error("not full at the limit")
	}
	set(mib)
	if s.Tables.Reclaimed(); s.Tables.next != 4*mib {
		t.Errorf("full at %d", s.Tables.next)
	}
	if s, _ := newShard(2, config.Limits{Buffered: 1, Message: 1}); s.Tables.limit != chargeStep {
		t.Errorf("of little memory tables may have %d", s.Tables.limit)
	}
}

// TestExcludes: beyond its share a connection sends only small requests, and none while its peer does not read.
func TestExcludes(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: mib, Message: mib})
	s.Process.Sessions.Store(4)
	const share = mib
	for _, c := range []struct {
		use    Use
		length int
		want   bool
	}{
		{Use{Held: share, Unread: share + 1, Requests: 1}, share + 1, false},
		{Use{Held: share + 1, Requests: 1}, share, false},
		{Use{Held: share + 1, Requests: 1}, share + 1, true},
		{Use{Held: share + 1, Requests: 4}, share / 4, false},
		{Use{Held: share + 1, Requests: 4}, share/4 + 1, true},
		{Use{Held: share + 1, Unread: share, Requests: 4}, 0, false},
		{Use{Held: share + 1, Unread: share + 1, Requests: 4}, 0, true},
	} {
		if c.use.Excludes(s, c.length) != c.want {
			t.Errorf("%+v: a request of %d bytes is excluded: %t", c.use, c.length, !c.want)
		}
	}
}

// TestMemory: memory counts once, whoever uses it, and is given back by the last user.
func TestMemory(t *testing.T) {
	s, _ := newShard(1, config.Limits{Buffered: 64 * mib, Message: mib})
	for range 2 { // the second time with what the first has left
		var m Memory
		freed, buffer := 0, s.Buffers.GetRoom(100_000)
		m.Share(s, func() { freed++ }, buffer, nil)
		held := s.Process.Budget.Held() + s.Uncounted
		if held != int64(protocol.Held(buffer)) || held < 100_000 || m.Part() != int(held) {
			t.Errorf("%d bytes held, %d by the only user", held, m.Part())
		}
		if m.Use() != &m || m.Part() != int(held)/2 {
			t.Errorf("%d of %d bytes held by each of two", m.Part(), held)
		}
		if m.Release(); freed != 0 || m.Part() != int(held) || m.buffers[0] == nil {
			t.Errorf("after the first: %d bytes, freed %d times", m.Part(), freed)
		}
		if m.Release(); freed != 1 || s.Process.Budget.Held()+s.Uncounted != 0 || m.buffers != [2]*bytebufferpool.ByteBuffer{} {
			t.Errorf("after the last: %d bytes, freed %d times", s.Process.Budget.Held()+s.Uncounted, freed)
		}
	}
	var m Memory
	m.Share(s, nil)
	m.Release()
}

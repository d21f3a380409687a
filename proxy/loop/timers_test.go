package loop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a plain implementation of Timers: a list, sorted when asked.
type model struct {
	armed []*Timer
	at    map[*Timer]time.Duration
	seq   map[*Timer]uint64
	last  uint64
}

func (m *model) arm(t *Timer, at time.Duration) {
	m.disarm(t)
	m.last++
	m.armed = append(m.armed, t)
	m.at[t], m.seq[t] = at, m.last
}

func (m *model) disarm(t *Timer) {
	m.armed = slices.DeleteFunc(m.armed, func(o *Timer) bool { return o == t })
}

func (m *model) first() *Timer {
	if len(m.armed) == 0 {
		return nil
	}
	return slices.MinFunc(m.armed, func(a, b *Timer) int {
		if m.at[a] != m.at[b] {
			return int(m.at[a] - m.at[b])
		}
		return int(m.seq[a]) - int(m.seq[b])
	})
}

func (m *model) pop(now time.Duration, limit uint64) *Timer {
	t := m.first()
	if t == nil || m.at[t] > now || m.seq[t] > limit {
		return nil
	}
	m.disarm(t)
	return t
}

// check compares q with the model, and checks the positions in the heap.
func (m *model) check(t *testing.T, q *Timers) {
	t.Helper()
	if q.Len() != len(m.armed) || q.LastSeq() != m.last {
		t.Fatalf("Len %d, LastSeq %d; want %d and %d", q.Len(), q.LastSeq(), len(m.armed), m.last)
	}
	first := m.first()
	if at, ok := q.Next(); ok != (first != nil) || ok && at != m.at[first] {
		t.Fatalf("Next is %v, %t; want that of %v", at, ok, first)
	}
	for i, timer := range q.heap {
		if timer.pos != i+1 {
			t.Fatalf("the timer at position %d of the heap has position %d", i, timer.pos-1)
		}
		if !timer.armed && !timer.Pooled {
			t.Fatalf("the timer at position %d of the heap is disarmed and not pooled", i)
		}
	}
}

func TestTimersAgainstModel(t *testing.T) {
	swept := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		timers := make([]Timer, 1+r.IntN(300))
		for i := range timers {
			timers[i].Pooled = r.IntN(4) > 0
		}
		q, m := Timers{}, &model{at: map[*Timer]time.Duration{}, seq: map[*Timer]uint64{}}
		for i := range 1000 {
			timer := &timers[r.IntN(len(timers))]
			op := r.IntN(5)
			if i%400 > 250 && len(m.armed) > 0 { // only disarm and pop for a while
				op, timer = 3+r.IntN(8)/7, m.armed[0]
			}
			switch op {
			case 0, 1, 2: // few distinct times, so that ties are frequent
				at := time.Duration(r.IntN(1 + r.IntN(30)))
				q.Arm(timer, at)
				m.arm(timer, at)
			case 3:
				before := len(q.heap)
				q.Disarm(timer)
				m.disarm(timer)
				if len(q.heap) < before-1 {
					swept++
				}
			case 4:
				now, limit := time.Duration(r.IntN(30)), m.last-min(m.last, uint64(r.IntN(20)))
				if got, want := q.Pop(now, limit), m.pop(now, limit); got != want {
					t.Fatalf("seed %d: Pop(%v, %d) is %p, want %p", seed, now, limit, got, want)
				}
			}
			if timer.Armed() != slices.Contains(m.armed, timer) {
				t.Fatalf("seed %d: Armed is %t", seed, timer.Armed())
			}
			if r.IntN(10) == 0 { // Next changes the heap, so not each time
				m.check(t, &q)
			}
		}
		for t1 := q.Pop(1000, q.LastSeq()); t1 != nil; t1 = q.Pop(1000, q.LastSeq()) {
			if want := m.pop(1000, m.last); t1 != want {
				t.Fatalf("seed %d: Pop is %p at the end, want %p", seed, t1, want)
			}
		}
		m.check(t, &q)
	}
	if swept == 0 {
		t.Error("the heap was never swept")
	}
}

// TestDisarmKeepsOrder: timers fire in order, whichever was disarmed.
func TestDisarmKeepsOrder(t *testing.T) {
	for disarmed := 1; disarmed < 80; disarmed++ {
		var q Timers
		timers := make([]Timer, 80)
		for i := range timers { // each stays where it is appended: the first branch of the heap is after the others
			branch := i
			for branch > 4 {
				branch = (branch - 1) / 4
			}
			q.Arm(&timers[i], time.Duration(100*[...]int{0, 4, 1, 2, 3}[branch]+i))
		}
		q.Disarm(&timers[disarmed])
		last := time.Duration(-1)
		for timer := q.Pop(1<<20, q.LastSeq()); timer != nil; timer = q.Pop(1<<20, q.LastSeq()) {
			if timer.at < last {
				t.Fatalf("without timer %d: one for %d after one for %d", disarmed, timer.at, last)
			}
			last = timer.at
		}
	}
}

// TestPopLimit: a timer that arms itself again for now waits for the next turn.
func TestPopLimit(t *testing.T) {
	var q Timers
	var timer, other Timer
	q.Arm(&timer, 5)
	q.Arm(&other, 5)
	mark, fired := q.LastSeq(), 0
	for timer := q.Pop(5, mark); timer != nil; timer = q.Pop(5, mark) {
		fired++
		q.Arm(timer, 5)
	}
	if fired != 2 || q.Len() != 2 {
		t.Errorf("%d fired, %d armed; want 2 and 2", fired, q.Len())
	}
}

func TestTimersDoNotAllocate(t *testing.T) {
	var q Timers
	timers := make([]Timer, 1000)
	round := func() {
		for i := range timers {
			q.Arm(&timers[i], time.Duration(i*7919%1000))
		}
		for i := 0; i < len(timers); i += 2 {
			q.Disarm(&timers[i])
		}
		for q.Pop(1000, q.LastSeq()) != nil {
		}
	}
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations for arming, disarming and popping", n)
	}
}

// TestTimersSweep: the heap keeps few disarmed timers from the garbage collector, all of
// them pooled, and none that was due before the next armed one.
func TestTimersSweep(t *testing.T) {
	var q Timers
	const armed, all = 10, 10 * maxDisarmed
	timers := make([]Timer, all)
	for i := range timers {
		timers[i].Pooled = true
		q.Arm(&timers[i], time.Duration(all-i))
	}
	kept := func() (n int) {
		for _, t := range q.heap[:cap(q.heap)] {
			if t != nil && !t.armed {
				n++
			}
		}
		return n
	}
	for i := armed; i < all; i++ {
		q.Disarm(&timers[i])
		if n := kept(); n > q.Len()+maxDisarmed {
			t.Fatalf("the heap keeps %d disarmed timers and %d armed ones", n, q.Len())
		}
	}
	if kept() == 0 {
		t.Error("the heap keeps no disarmed timer, so each Disarm changed it")
	}
	if q.Next(); kept() != 0 {
		t.Errorf("the heap keeps %d disarmed timers that were due before the next one", kept())
	}
	var first, other Timer
	q.Arm(&first, 0)
	q.Arm(&other, all)
	if q.Disarm(&other); kept() != 0 {
		t.Error("the heap keeps a disarmed timer that is not pooled")
	}
}

func TestFlushes(t *testing.T) {
	var q Flushes
	var ran []string
	a, b := Flush{}, Flush{}
	a.Do = func() { ran = append(ran, "a"); q.Add(&a); q.Add(&b) }
	b.Do = func() { ran = append(ran, "b") }
	q.Add(&a)
	q.Add(&a)
	q.Add(&b)
	for range 3 {
		if q.Empty() {
			t.Fatal("no flush is queued")
		}
		for _, f := range q.Take() {
			f.Do()
		}
		ran = append(ran, "|")
	}
	if want := []string{"a", "b", "|", "a", "b", "|", "a", "b", "|"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if n := testing.AllocsPerRun(10, func() {
		q.Add(&b)
		q.Take()
	}); n != 0 {
		t.Errorf("%v allocations per turn", n)
	}
}

func BenchmarkTimers(b *testing.B) {
	var q Timers
	timers := make([]Timer, 10_000)
	for i := range timers {
		q.Arm(&timers[i], time.Duration(i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Arm(&timers[i*7919%len(timers)], time.Duration(i))
	}
}

// BenchmarkDeadlines measures one deadline per request: that of the oldest request is
// disarmed, that of a new one armed. Timers are as far apart in memory as in exchanges.
func BenchmarkDeadlines(b *testing.B) {
	for _, n := range []int{64, 512, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var q Timers
			requests := make([]struct {
				_ [1024]byte
				Timer
			}, n)
			for i := range requests {
				requests[i].Pooled = true
			}
			i, now := 0, time.Duration(0)
			for b.Loop() {
				t := &requests[i].Timer
				q.Disarm(t)
				now++
				q.Arm(t, now+time.Second)
				i = (i + 1) % n
			}
		})
	}
}

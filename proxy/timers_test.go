package proxy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is Timers as anyone would believe it: a list, sorted when asked.
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

// check compares what can be seen of q with the model, and the heap's own marks.
func (m *model) check(t *testing.T, q *Timers) {
	t.Helper()
	if q.Len() != len(m.armed) || q.Mark() != m.last {
		t.Fatalf("Len %d, Mark %d; want %d and %d", q.Len(), q.Mark(), len(m.armed), m.last)
	}
	first := m.first()
	if at, ok := q.Next(); ok != (first != nil) || ok && at != m.at[first] {
		t.Fatalf("Next is %v, %t; want that of %v", at, ok, first)
	}
	for i, timer := range q.heap {
		if timer.pos != i+1 {
			t.Fatalf("timer at %d of the heap believes to be at %d", i, timer.pos-1)
		}
	}
}

func TestTimersAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		timers := make([]Timer, 1+r.IntN(100))
		q, m := Timers{}, &model{at: map[*Timer]time.Duration{}, seq: map[*Timer]uint64{}}
		for range 500 {
			timer := &timers[r.IntN(len(timers))]
			switch r.IntN(5) {
			case 0, 1, 2: // few distinct times: ties are what goes wrong
				at := time.Duration(r.IntN(1 + r.IntN(30)))
				q.Arm(timer, at)
				m.arm(timer, at)
			case 3:
				q.Disarm(timer)
				m.disarm(timer)
			case 4:
				now, limit := time.Duration(r.IntN(30)), m.last-min(m.last, uint64(r.IntN(20)))
				if got, want := q.Pop(now, limit), m.pop(now, limit); got != want {
					t.Fatalf("seed %d: Pop(%v, %d) is %p, want %p", seed, now, limit, got, want)
				}
			}
			m.check(t, &q)
			if timer.Armed() != slices.Contains(m.armed, timer) {
				t.Fatalf("seed %d: Armed is %t", seed, timer.Armed())
			}
		}
	}
}

// TestTimersLimit: a timer that re-arms itself for now waits for the next turn.
func TestTimersLimit(t *testing.T) {
	var q Timers
	var timer, other Timer
	q.Arm(&timer, 5)
	q.Arm(&other, 5)
	mark, fired := q.Mark(), 0
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
		for q.Pop(1000, q.Mark()) != nil {
		}
	}
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations for arming, disarming and popping", n)
	}
}

func TestTimersLetGo(t *testing.T) {
	var q Timers
	var timer Timer
	q.Arm(&timer, 1)
	q.Disarm(&timer)
	if kept := q.heap[:1][0]; kept != nil {
		t.Error("a disarmed timer is kept from the garbage collector")
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
			t.Fatal("nothing queued")
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

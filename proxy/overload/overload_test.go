package overload

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// process is a process with two resources whose use a test sets.
type process struct {
	*Manager
	used, bounded int64
	sheds         int
	log           strings.Builder
}

func newProcess() *process {
	p := &process{}
	limit := func() int64 { return 100 }
	p.Manager = New(Options{
		Resources: []Resource{
			{Name: "idle", Used: func() int64 { return 1 }, Limit: limit},
			{Name: "unlimited", Used: func() int64 { return 1 << 40 }, Limit: func() int64 { return 0 }},
			{Name: "bounded", Used: func() int64 { return p.bounded }, Limit: limit, Bounded: true},
			{Name: "one", Used: func() int64 { return p.used }, Limit: limit},
		},
		Shed:   func() { p.sheds++ },
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	return p
}

// TestStates: a state begins at its share of a limit and ends 5% below, sheds and refuses what
// it says, and is logged once.
func TestStates(t *testing.T) {
	p := newProcess()
	for i, c := range []struct {
		used int64
		want State
	}{
		{0, Normal}, {84, Normal}, {85, Shedding}, {80, Shedding}, {94, Shedding}, {79, Normal}, {84, Normal},
		{95, Refusing}, {200, Refusing}, {90, Refusing}, {89, Shedding}, {94, Shedding}, {95, Refusing}, {79, Normal},
	} {
		p.used = c.used
		sheds, lines := p.sheds, strings.Count(p.log.String(), "\n")
		before, _ := p.State()
		p.Sample()
		got, reason := p.State()
		if got != c.want || (reason == "one") != (c.want > Normal) {
			t.Errorf("%d: at %d%% the state is %v because of %q, want %v", i, c.used, got, reason, c.want)
		}
		if p.Refusing() != (got == Refusing) || (p.sheds > sheds) != (got >= Shedding) {
			t.Errorf("%d: in state %v it refuses: %t, sheds: %t", i, got, p.Refusing(), p.sheds > sheds)
		}
		if n := strings.Count(p.log.String(), "\n") - lines; (n == 1) != (before != got) || n > 1 {
			t.Errorf("%d: %d log lines from %v to %v", i, n, before, got)
		}
	}
	if want := "state=shedding was=normal resource=one used=85 limit=100"; !strings.Contains(p.log.String(), want) {
		t.Errorf("no %q in the log:\n%s", want, p.log.String())
	}
}

// TestReasonChanges: in one state the reason is the resource that is used most now.
func TestReasonChanges(t *testing.T) {
	var used [2]int64
	limit := func() int64 { return 100 }
	var log strings.Builder
	m := New(Options{
		Resources: []Resource{
			{Name: "a", Used: func() int64 { return used[0] }, Limit: limit},
			{Name: "b", Used: func() int64 { return used[1] }, Limit: limit},
		},
		Shed: func() {}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, c := range []struct {
		used   [2]int64
		reason string
	}{{[2]int64{90, 0}, "a"}, {[2]int64{0, 90}, "b"}, {[2]int64{91, 90}, "a"}, {[2]int64{90, 91}, "b"}, {[2]int64{90, 90}, "a"}} {
		used = c.used
		m.Sample()
		if s, reason := m.State(); s != Shedding || reason != c.reason {
			t.Errorf("at %v the state is %v because of %q, want %q", c.used, s, reason, c.reason)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines, want one for the change of state:\n%s", n, &log)
	}
}

// TestWorstState: the reason is a resource in the worst state, even if another one is used more by now.
func TestWorstState(t *testing.T) {
	used := [2]int64{95, 0}
	m := New(Options{
		Resources: []Resource{
			{Name: "a", Used: func() int64 { return used[0] }, Limit: func() int64 { return 100 }},
			{Name: "b", Used: func() int64 { return used[1] }, Limit: func() int64 { return 100 }},
		},
		Shed: func() {}, Logger: slog.New(slog.DiscardHandler),
	})
	m.Sample()
	used = [2]int64{91, 94}
	m.Sample()
	if s, reason := m.State(); s != Refusing || reason != "a" {
		t.Errorf("state %v because of %q", s, reason)
	}
}

// TestLeastLimit: one of one is all.
func TestLeastLimit(t *testing.T) {
	m := New(Options{
		Resources: []Resource{{Name: "a", Used: func() int64 { return 1 }, Limit: func() int64 { return 1 }}},
		Shed:      func() {}, Logger: slog.New(slog.DiscardHandler),
	})
	if m.Sample(); !m.Refusing() {
		t.Error("one of one is not all")
	}
}

// TestMemoryLimit: the limit is a tenth more than Go's, which is soft. Without one there is room for all that is possible.
func TestMemoryLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(100 << 30))
	if got := Memory().Limit(); got != 110<<30 {
		t.Errorf("the limit is %d", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got := Memory().Limit(); got < 1<<62 {
		t.Errorf("without a limit it is %d", got)
	}
}

// TestBoundedIsReportedOnly: a resource that a peer can use up alone makes nobody else suffer.
func TestBoundedIsReportedOnly(t *testing.T) {
	p := newProcess()
	p.bounded = 100
	p.Sample()
	if s, reason := p.State(); s != Normal || p.sheds > 0 {
		t.Errorf("state %v because of %q", s, reason)
	}
}

// TestRefusingIsFresh: the first connection after an overload is not refused, whenever the next
// sample is due.
func TestRefusingIsFresh(t *testing.T) {
	p := newProcess()
	p.used = 95
	p.Sample()
	if !p.Refusing() {
		t.Error("it does not refuse at 95%")
	}
	p.used = 0
	p.sampled = p.sampled.Add(-fresh)
	if p.Refusing() {
		t.Error("it refuses at 0%")
	}
	if s, _ := p.State(); s != Normal {
		t.Errorf("state %v", s)
	}
}

// TestFreshSample: a sample refuses connections until it is too old.
func TestFreshSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		p.used = 95
		p.Sample()
		p.used = 0
		if time.Sleep(fresh - 1); !p.Refusing() {
			t.Error("a fresh sample does not count")
		}
		if time.Sleep(time.Nanosecond); p.Refusing() {
			t.Error("a sample that is too old refuses a connection")
		}
	})
}

// TestReleasedMemory: memory that Go has given back to the system is not in use.
func TestReleasedMemory(t *testing.T) {
	const size = 64 << 20
	b := make([]byte, size)
	for i := range b {
		b[i] = 1
	}
	runtime.KeepAlive(b)
	b = nil
	debug.FreeOSMemory()
	used := Memory().Used()
	total := [...]metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	if metrics.Read(total[:]); used > int64(total[0].Value.Uint64())-size/2 {
		t.Errorf("%d bytes are used, of all that Go has ever had", used)
	}
}

// TestSampleAlloc: a sample without a change of state allocates nothing.
func TestSampleAlloc(t *testing.T) {
	p := newProcess()
	p.used = 90
	p.Sample()
	if n := testing.AllocsPerRun(100, p.Sample); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestSystem: what the system reports is plausible.
func TestSystem(t *testing.T) {
	n, ok := OpenFiles()
	if ok && (n < 3 || n > 1000) {
		t.Errorf("%d open files", n)
	}
	if dir, err := os.Stat("/proc/self/fd"); ok != (err == nil && dir.Size() > 0) {
		t.Errorf("the open files are counted: %t", ok)
	}
	m := Memory()
	if used, limit := m.Used(), m.Limit(); used < 1<<20 || used >= limit {
		t.Errorf("%d bytes used of %d", used, limit)
	}
}

// TestWait: samples follow each other faster once a quarter of a resource is in use.
func TestWait(t *testing.T) {
	p := newProcess()
	for _, c := range []struct {
		used int64
		want time.Duration
	}{{0, calmInterval}, {24, calmInterval}, {25, interval}, {100, interval}, {10, calmInterval}} {
		p.used = c.used
		p.Sample()
		if got := p.wait(); got != c.want {
			t.Errorf("at %d%% the next sample comes after %v, want %v", c.used, got, c.want)
		}
	}
}

// TestRest: a process that does nothing is sampled less often, until its first work.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		works := make(chan func(), 10)
		p.opt.OnWork = func(f func()) { works <- f }
		var samples []time.Duration
		var used atomic.Int64
		began := time.Now()
		p.opt.Resources[0].Used = func() int64 {
			samples = append(samples, time.Since(began))
			return used.Load()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		time.Sleep(10 * time.Second)
		(<-works)()
		time.Sleep(1100 * time.Millisecond)
		used.Store(50)
		time.Sleep(time.Second)
		cancel()
		<-ended
		want := []time.Duration{250, 1250, 6250, 10250, 11250, 11500, 11750, 12000}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(samples, want) {
			t.Errorf("samples at %v, want %v", samples, want)
		}
	})
}

// TestWorkBeforeRest: work that comes while the next sample is chosen is not missed.
func TestWorkBeforeRest(t *testing.T) {
	p := newProcess()
	works := 0
	p.opt.OnWork = func(f func()) {
		if works++; works == 1 {
			f()
		}
	}
	p.Sample()
	for i, want := range []time.Duration{calmInterval, calmInterval, restInterval} {
		if got := p.wait(); got != want {
			t.Errorf("%d: the next sample comes after %v, want %v", i, got, want)
		}
	}
	p.onWork()
	if len(p.woken) == 0 || p.wait() != calmInterval {
		t.Error("work does not end the rest")
	}
}

// TestWorkNeverBlocks: a loop that says that there is work does not wait for Run, which may have ended.
func TestWorkNeverBlocks(t *testing.T) {
	p := newProcess()
	for range 3 {
		p.resting.Store(true)
		p.onWork()
	}
	if len(p.woken) == 0 || p.resting.Load() {
		t.Errorf("%d signals, resting: %v", len(p.woken), p.resting.Load())
	}
}

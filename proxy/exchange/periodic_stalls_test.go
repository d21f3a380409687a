package exchange_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// freezes is a mesh whose applications freeze together.
type freezes struct {
	*proxytest.Mesh
	inside, outside uint64 // hedges in freezes and between them
}

const freezeLength = 900 * time.Millisecond

func newFreezes(t *testing.T, service string) *freezes {
	m := &freezes{Mesh: proxytest.NewMesh(t, proxytest.MeshOptions{
		Loops: 2, Service: proxytest.Fields("idempotent: true, timeout: 3s", service),
	})}
	for _, a := range m.Apps {
		n := 0
		a.Delay = func() time.Duration {
			if n++; n%50 == 0 { // hedges help
				return 60 * time.Millisecond
			}
			return time.Millisecond
		}
	}
	return m
}

// run sends requests for d. All applications freeze at the times in at.
func (m *freezes) run(d time.Duration, at ...time.Duration) {
	m.T.Helper()
	start := m.W.Now()
	hedges := func() uint64 { return m.Consumer.Stats("compute").Hedges }
	var during uint64
	before := hedges()
	for _, begin := range at {
		m.Apps.Freeze(begin, freezeLength)
		m.W.At(begin, func() { during -= hedges() })
		m.W.At(begin+freezeLength, func() { during += hedges() })
	}
	calls := m.SendAtRate(uint64(start), 100, d)
	m.FinishAfter(d+time.Second, calls)
	m.OK(calls...)
	m.inside += during
	m.outside += hedges() - before - during
}

// every returns n times with a period, the first after one.
func (m *freezes) every(period time.Duration, n int) (at []time.Duration) {
	for i := range n {
		at = append(at, m.W.Now()+time.Duration(i+1)*period)
	}
	return at
}

func (m *freezes) period() (p periodic.Period, at time.Time) {
	for i := range m.Consumer.Loops {
		var r stats.WorkerReport
		m.Consumer.Loops[i].Do(func() { r = m.Consumer.Proc.Workers()[i].Report(stats.Counters) })
		if s := r.Services[0]; s.Stalls.Seen > p.Seen {
			p, at = s.Stalls, s.StalledAt
		}
	}
	return p, at
}

func (m *freezes) logged(line string) int { return strings.Count(m.Consumer.LogText.String(), line) }

// TestPeriodicStalls: all replicas freeze every ten seconds. After five freezes the period is known, and
// hardly any hedge is sent in the next ones. It is forgotten when the freezes end.
func TestPeriodicStalls(t *testing.T) {
	const period, first, next = 10 * time.Second, 5, 20
	// With the best delay hardly any hedge is sent: the slowest hundredth are requests of the freezes.
	m := newFreezes(t, "hedge: {mode: on, delay: p97}")
	gates := func() uint64 { return m.Consumer.Stats("compute").Gates[hedge.Periodic] }
	start := m.W.Now()
	m.W.At(start+first*period, func() {
		if n := gates(); n > 0 {
			t.Errorf("the gate was closed %d times before a period was known", n)
		}
	})
	m.run(first*period+5*time.Second, m.every(period, first)...)
	p, stalled := m.period()
	if p.Every.Round(100*time.Millisecond) != period || p.Length.Round(100*time.Millisecond) != freezeLength || p.Seen != first {
		t.Fatalf("after five freezes: %+v", p)
	}
	// The epoch is 100 ms before a full minute.
	if second, ok := p.Second(stalled); !ok || second != 0 {
		t.Errorf("they begin at second %d, known: %v", second, ok)
	}
	found := `found="the replicas of compute stall together every 10 s at second 0 for 0.9 s"`
	if n := m.logged(found); n != 1 {
		t.Errorf("logged %d times; the log:\n%s", n, &m.Consumer.LogText)
	}
	inside, outside := m.inside, m.outside

	m.inside, m.outside = 0, 0
	m.W.Run(start + 59*time.Second - m.W.Now())
	at := make([]time.Duration, next)
	for i := range at {
		at[i] = p.Last + time.Duration(i+1)*period
	}
	m.run(next*period, at...)
	t.Logf("hedges in the first %d freezes: %d, in the next %d: %d; between them: %d and %d; gate closed %d times",
		first, inside, next, m.inside, outside, m.outside, gates())
	// A freeze is seen some milliseconds late, with the first request in it, so that a hedge may leave before the expected time.
	if inside == 0 || 8*first*m.inside > next*inside || gates() == 0 {
		t.Errorf("%d and %d hedges in freezes, want hardly any once their period is known; the gate was closed %d times", inside, m.inside, gates())
	}
	if m.outside*first < outside*next/2 {
		t.Errorf("%d and %d hedges between the freezes, want as many as before", outside, m.outside)
	}

	m.run(4 * period)
	if p, _ := m.period(); p.Every != 0 || m.logged("periodic stalls are over") != 1 {
		t.Errorf("four periods without a freeze: %+v; the log:\n%s", p, &m.Consumer.LogText)
	}
	was := gates()
	m.run(2*period, m.every(period, 1)...)
	if gates() != was {
		t.Error("the gate is still closed at times")
	}
	m.Settled()
}

// TestRandomStalls: freezes at random times have no period.
func TestRandomStalls(t *testing.T) {
	m, rnd := newFreezes(t, "hedge: {mode: on}"), rand.New(rand.NewPCG(1, 1))
	var at []time.Duration
	for next := m.W.Now(); len(at) < 20; at = append(at, next) {
		next += 2*time.Second + time.Duration(rnd.ExpFloat64()*float64(4*time.Second))
	}
	m.run(at[len(at)-1]+2*time.Second, at...)
	s := m.Consumer.Stats("compute")
	if p, _ := m.period(); p.Every != 0 || m.logged("periodic") > 0 || s.Gates[hedge.Periodic] > 0 {
		t.Errorf("%+v, gates %v; the log:\n%s", p, s.Gates, &m.Consumer.LogText)
	}
	if s.Gates[hedge.Correlated] == 0 {
		t.Error("no freeze was seen: the test proves nothing")
	}
}

// TestPeriodicStallsInShadow: the period is known without hedging, too.
func TestPeriodicStallsInShadow(t *testing.T) {
	for _, mode := range []string{"shadow", "off"} {
		m := newFreezes(t, "hedge: {mode: "+mode+"}")
		m.run(35*time.Second, m.every(5*time.Second, 6)...)
		if p, _ := m.period(); p.Every.Round(100*time.Millisecond) != 5*time.Second {
			t.Errorf("%s: after six freezes: %+v", mode, p)
		}
	}
}

// TestPausesAreNoStalls: a sidecar that has no CPU for a while each ten seconds doesn't take its own
// pauses for stalls of the replicas.
func TestPausesAreNoStalls(t *testing.T) {
	m := newFreezes(t, "hedge: {mode: on, delay: p97}")
	for _, a := range m.Apps { // so that each always has a request
		a.Delay = func() time.Duration { return 100 * time.Millisecond }
	}
	for _, at := range m.every(10*time.Second, 8) {
		m.W.At(at, func() {
			for _, l := range m.Consumer.Loops {
				m.W.Faults.Pause(l, freezeLength)
			}
		})
	}
	m.run(85 * time.Second)
	if p, _ := m.period(); p.Every != 0 {
		t.Errorf("a period of the replicas: %+v", p)
	}
}

// TestPeriodicStallsOfClosedLoop: stalls are seen when all callers wait in them, and none sends a
// request.
func TestPeriodicStallsOfClosedLoop(t *testing.T) {
	m := newFreezes(t, "hedge: {mode: off}")
	m.Apps.Slow(50 * time.Millisecond)
	const period, clients = 10 * time.Second, 8
	for _, at := range m.every(period, 5) {
		m.Apps.Freeze(at, freezeLength)
	}
	calls := m.Crowd(clients, int(5*period/(50*time.Millisecond)), 10)
	m.FinishAfter(5*period, calls)
	if p, _ := m.period(); p.Every.Round(100*time.Millisecond) != period {
		t.Errorf("after five freezes: %+v", p)
	}
}

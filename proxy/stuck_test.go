package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
)

// Where hedges do not win, since all replicas are slow alike, the gate useless is
// closed. What is at a replica when that stops is hedged all the same: nobody else
// would answer it before its deadline.
func TestStuckRequestsAreHedgedThoughHedgesAreUseless(t *testing.T) {
	const length = 12 * time.Second
	m := newMesh(t, meshOptions{service: `, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 100 * time.Millisecond }
	}
	stops := m.w.Now() + 8*time.Second
	m.freeze(stops, time.Minute, m.apps[0])
	var before uint64
	m.w.At(stops, func() { before = m.consumer.stats("compute").Gates[hedge.Useless] })
	calls := m.stream(1, 200, length)
	m.finishStream(length, calls)
	m.ok(calls...)
	s := m.consumer.stats("compute")
	t.Logf("%d hedges for %d requests, %d won, gates %v", s.Hedges, s.Primaries, s.HedgesWon, s.Gates)
	if before == 0 {
		t.Error("hedges were not useless before")
	}
}

package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestStalledRequestsHedgedWhenUseless: if all replicas are equally slow, hedges do not
// win and the gate useless is closed. Requests at a replica that stalls are hedged
// nevertheless, since they would reach their deadline otherwise.
func TestStalledRequestsHedgedWhenUseless(t *testing.T) {
	const length = 12 * time.Second
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: `idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`})
	m.Apps.Slow(100 * time.Millisecond)
	stops := m.W.Now() + 8*time.Second
	proxytest.Apps{m.Apps[0]}.Freeze(stops, time.Minute)
	var before uint64
	m.W.At(stops, func() { before = m.Consumer.Stats("compute").Gates[hedge.Useless] })
	calls := m.SendAtRate(1, 200, length)
	m.FinishAfter(length, calls)
	m.OK(calls...)
	s := m.Consumer.Stats("compute")
	t.Logf("%d hedges for %d requests, %d won, gates %v", s.Hedges, s.Primaries, s.HedgesWon, s.Gates)
	if before == 0 {
		t.Error("the gate useless was not closed before")
	}
}

package exchange_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestSingleFaults: with one fault at a time in a mesh under load, every request, which is
// idempotent and may be retried twice, receives status 200 and its own nonce. Nothing is
// left over. Each seed has other faults.
func TestSingleFaults(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() || racetest.Enabled { // a single goroutine has no races to detect
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { faultyMesh(t, seed) })
	}
}

func faultyMesh(t *testing.T, seed uint64) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Provider: "max_concurrency: 16",
		Service: `timeout: 2s, idempotent: true,
		retry: {attempts: 2, on: [connect, refused, reset]}, hedge: {mode: on, budget: 1}`})
	rnd := m.W.Rand()
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return time.Duration(200+rnd.IntN(3000)) * time.Microsecond }
	}
	for at := 20 * time.Millisecond; at < 400*time.Millisecond; at += 100 * time.Millisecond {
		m.W.At(at, func() { m.InjectFault(proxytest.Fault(rnd.IntN(int(proxytest.NumFaults))), rnd.IntN(len(m.Apps))) })
	}
	var all []*proxytest.Call
	for range 20 {
		var calls []*proxytest.Call
		for range 100 {
			size := 300
			if rnd.IntN(20) == 0 {
				size = rnd.IntN(200_000)
			}
			calls = append(calls, m.Post(size))
		}
		m.Do(calls...)
		all = append(all, calls...)
	}
	m.OK(all...)
	m.W.Run(500 * time.Millisecond) // until crashed applications are back
	m.Settled()
}

// TestLinkToVanishedProvider: a provider that vanishes sends no FIN. When the registry has
// removed it, the link to it closes once its last request in flight has ended.
func TestLinkToVanishedProvider(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "timeout: 2s"})
	m.WarmUp(1)
	for _, l := range m.Nodes[1].Loops {
		m.W.Faults.Vanish(l)
	}
	lost := m.Post(10)
	m.Do(lost)
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Update("compute")
	m.Finish(lost)
	if lost.Status != 504 {
		t.Errorf("status %d, want 504", lost.Status)
	}
	m.W.Run(time.Second)
	for _, what := range m.W.Leftovers() {
		if strings.Contains(what, m.Endpoint(0).Addr) {
			t.Errorf("%s, a second after its last request", what)
		}
	}
}

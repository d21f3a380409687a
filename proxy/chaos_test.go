package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// restart brings a crashed node back, empty, on its old addresses.
func (n *node) restart(app *app) {
	n.start()
	n.listen(15006)
	n.update("local", registry.Endpoint{Addr: app.addr, Weight: 1})
}

// TestFaultsCostNoAnswer lets one thing at a time go wrong in a mesh under load,
// seed after seed: every request, being idempotent and allowed two retries, is
// answered with 200 and its own nonce, and nothing is left behind.
func TestFaultsCostNoAnswer(t *testing.T) {
	seeds := uint64(100)
	switch {
	case testing.Short():
		seeds = 10
	case raceEnabled: // of which one goroutine shows nothing
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { faultyMesh(t, seed) })
	}
}

func faultyMesh(t *testing.T, seed uint64) {
	m := newMesh(t, meshOptions{seed: seed, provider: ", max_concurrency: 16",
		service: `, timeout: 2s, idempotent: true,
		retry: {attempts: 2, on: [connect, refused, reset]}, hedge: {mode: on, budget: 1}`})
	rnd := m.w.Rand()
	for _, a := range m.apps {
		a.delay = func() time.Duration { return time.Duration(200+rnd.IntN(3000)) * time.Microsecond }
	}
	for at := 20 * time.Millisecond; at < 400*time.Millisecond; at += 100 * time.Millisecond {
		m.w.At(at, func() { m.fault(rnd.IntN(6), rnd.IntN(len(m.apps))) })
	}
	var all []*call
	for range 20 {
		var calls []*call
		for range 100 {
			size := 300
			if rnd.IntN(20) == 0 {
				size = rnd.IntN(200_000)
			}
			calls = append(calls, m.post(size))
		}
		m.do(calls...)
		all = append(all, calls...)
	}
	m.finish(all...)
	m.ok(all...)
	m.w.Run(500 * time.Millisecond) // past the last fault: who crashed is back
	m.settled()
}

// fault makes one thing go wrong with provider i, for less than 80 ms.
func (m *mesh) fault(kind, i int) {
	app := m.apps[i]
	var provider *node
	if !m.direct {
		provider = m.nodes[i+1]
	}
	later := m.w.Now() + 50*time.Millisecond
	switch kind {
	case 0:
		provider.crash()
		proc := provider.proc
		m.w.At(later, func() {
			if provider.proc == proc {
				provider.restart(app)
			}
		})
	case 1:
		m.w.Crash(app.loop)
		loop := app.loop
		m.w.At(later, func() {
			if app.loop == loop {
				app.restart()
			}
		})
	case 2:
		m.w.Pause(app.loop, 50*time.Millisecond)
	case 3:
		for _, l := range provider.all {
			m.w.Pause(l, 50*time.Millisecond)
		}
	case 4:
		m.w.ResetAll(m.consumer.host, provider.host)
	case 5:
		m.w.ResetAll(provider.host, app.host+"-app")
	}
}

// A provider that vanishes leaves no FIN. The link to it ends with what was out on
// it, once the registry has forgotten the provider: there is nothing to wait for.
func TestLinkOfAForgottenEndpointEndsWithItsRequests(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, service: ", timeout: 2s"})
	m.warm(1)
	for _, l := range m.nodes[1].all {
		m.w.Vanish(l)
	}
	lost := m.post(10)
	m.do(lost)
	m.w.Run(10 * time.Millisecond)
	m.consumer.update("compute")
	m.finish(lost)
	if lost.status != 504 {
		t.Errorf("status %d, want 504", lost.status)
	}
	m.w.Run(time.Second)
	for _, what := range m.w.Leftovers() {
		if strings.Contains(what, m.endpoint(0).Addr) {
			t.Errorf("%s, a second after its last request", what)
		}
	}
}

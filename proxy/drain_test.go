package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
)

// A provider that drains says so: what it has begun it finishes, and everything
// after goes to the others. Nobody notices, whatever the method.
func TestDrainingProviderLosesNothing(t *testing.T) {
	for seed := range uint64(20) {
		m := newMesh(t, meshOptions{seed: seed, service: ", retry: {on: [connect]}"})
		for _, a := range m.apps {
			a.delay = func() time.Duration { return 5 * time.Millisecond }
		}
		all := m.crowd(20, 20, 100)
		provider := m.nodes[1]
		var served int
		m.w.At(30*time.Millisecond, func() {
			for _, stop := range provider.stop {
				stop()
			}
			provider.proc.Drain()
			served = m.apps[0].served
		})
		m.finish(all...)
		m.ok(all...)
		m.settled()
		if served == 0 || m.apps[0].served > served+20 {
			t.Errorf("seed %d: the draining provider had served %d and then %d more", seed, served, m.apps[0].served-served)
		}
		if t.Failed() {
			return
		}
	}
}

// A provider that drains with its link port open turns new links away, which
// looks to the consumer as if the port was closed: it goes elsewhere for free, and
// soon does not ask any more.
func TestDrainingPortTurnsAway(t *testing.T) {
	m := newMesh(t, meshOptions{service: ", retry: {on: [connect]}, outlier: {base: 1h}"})
	all := m.crowd(20, 20, 100)
	provider := m.nodes[1].proc
	m.w.At(30*time.Millisecond, provider.Drain)
	m.finish(all...)
	m.ok(all...)
	if n := m.consumer.stats("compute").Ejections; n != [lb.Reasons]uint64{lb.ByConsecutive: 1} {
		t.Errorf("ejections %v, want one for links that are turned away", n)
	}
	if n := provider.Links(); n != 0 {
		t.Errorf("%d links after a drain", n)
	}
	if n := m.nodes[2].proc.Links(); n != 1 {
		t.Errorf("%d links at a provider that serves", n)
	}
	m.settled()
}

// A consumer that drains answers what it has, then closes.
func TestDrainingConsumerFinishes(t *testing.T) {
	eachTopology(t, meshOptions{}, func(t *testing.T, m *mesh) {
		for _, a := range m.apps {
			a.delay = func() time.Duration { return 20 * time.Millisecond }
		}
		used, busy, late := m.post(10), m.post(10), m.post(10)
		idle, fresh := m.do(used), m.dial(egress)
		m.finish(used)
		cl := m.do(busy)
		m.w.Run(5 * time.Millisecond)
		m.consumer.proc.Drain()
		m.finish(busy)
		m.ok(used, busy)
		// Nothing tells a fresh connection from one whose first request is on
		// its way.
		m.clients.Do(func() { fresh.calls = append(fresh.calls, late); fresh.send() })
		m.finish(late)
		m.ok(late)
		if !m.w.RunUntil(func() bool { return idle.ended && cl.ended && fresh.ended }, time.Second) {
			t.Error("connections stay open after a drain")
		}
		m.settled()
	})
}

// A short request that shares a link with long bodies waits for a few frames of
// theirs at most: over a line of 100 MB/s, for the window of 128 KiB and not
// for the 4 MiB.
func TestShortRequestsPassLongOnes(t *testing.T) {
	const megabytes = 100 << 20
	m := newMesh(t, meshOptions{apps: 1, bandwidth: megabytes})
	m.apps[0].body = func(req *protocol.Request) []byte { return req.Body[:min(len(req.Body), 300)] }
	alone := m.post(300)
	m.do(alone)
	m.finish(alone)
	var long []*call
	for range 4 {
		c := m.post(maxMessage)
		m.do(c)
		long = append(long, c)
	}
	m.w.Run(60 * time.Millisecond) // the bodies are under way on the link
	var short []*call
	for range 10 {
		c := m.post(300)
		m.do(c)
		m.finish(c)
		short = append(short, c)
	}
	for _, c := range long {
		if c.done {
			t.Fatal("the long bodies were through before the short requests began")
		}
	}
	m.finish(long...)
	m.ok(append(append(long, short...), alone)...)
	window := time.Duration(float64(128<<10) / megabytes * float64(time.Second))
	for _, c := range short {
		if late := c.took - alone.took; late > 2*window {
			t.Errorf("a short request took %v longer beside long ones; a window takes %v", late, window)
		}
	}
	m.settled()
}

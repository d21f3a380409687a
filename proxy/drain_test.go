package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// A provider that drains finishes the requests in flight; later requests go to the others.
// No request fails, whatever its method.
func TestDrainProvider(t *testing.T) {
	for seed := range uint64(20) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Service: "retry: {on: [connect]}"})
		m.Apps.Slow(5 * time.Millisecond)
		all := m.Crowd(20, 20, 100)
		provider := m.Nodes[1]
		var served int
		m.W.At(30*time.Millisecond, func() {
			for _, stop := range provider.Stop {
				stop()
			}
			provider.Proc.Drain()
			served = m.Apps[0].Served
		})
		m.OK(all...)
		m.Settled()
		if served == 0 || m.Apps[0].Served > served+20 {
			t.Errorf("seed %d: the draining provider had served %d and then %d more", seed, served, m.Apps[0].Served-served)
		}
		if t.Failed() {
			return
		}
	}
}

// A provider that drains with its link port open refuses new links. The consumer treats
// that as a closed port: it retries elsewhere for free, and soon ejects the endpoint.
func TestDrainRefusesLinks(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "retry: {on: [connect]}, outlier: {base: 1h}"})
	all := m.Crowd(20, 20, 100)
	provider := m.Nodes[1].Proc
	m.W.At(30*time.Millisecond, provider.Drain)
	m.OK(all...)
	if n := m.Consumer.Stats("compute").Ejections; n != [outlier.Reasons]uint64{outlier.ByConsecutive: 1} {
		t.Errorf("ejections %v, want one for refused links", n)
	}
	if n := provider.Links(); n != 0 {
		t.Errorf("%d links after a drain", n)
	}
	if n := m.Nodes[2].Proc.Links(); n != 1 {
		t.Errorf("%d links at a provider that serves", n)
	}
	m.Settled()
}

// A consumer that drains responds to the requests in flight, then closes its connections.
func TestDrainConsumer(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps.Slow(20 * time.Millisecond)
		used, busy, late := m.Post(10), m.Post(10), m.Post(10)
		idle, fresh := m.Do(used), m.Dial(proxytest.Egress)
		m.Finish(used)
		cl := m.Do(busy)
		m.W.Run(5 * time.Millisecond)
		m.Consumer.Proc.Drain()
		m.Finish(busy)
		m.OK(used, busy)
		// The first request of a new connection may be on its way, so it is served.
		m.Clients.Do(func() { fresh.Calls = append(fresh.Calls, late); fresh.Send() })
		m.OK(late)
		if !m.W.RunUntil(func() bool { return idle.Ended && cl.Ended && fresh.Ended }, time.Second) {
			t.Error("connections stay open after a drain")
		}
		m.Settled()
	})
}

// A short request that shares a link with long bodies waits for a few of their frames at
// most: for the window of 256 KiB at 100 MB/s, and not for 4 MiB.
func TestShortRequestsBesideLongOnes(t *testing.T) {
	const megabytes = 100 << 20
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Bandwidth: megabytes})
	m.Apps[0].Body = func(req *protocol.Request) []byte { return req.Body[:min(len(req.Body), 300)] }
	alone := m.Post(300)
	m.Do(alone)
	m.Finish(alone)
	var long []*proxytest.Call
	for range 4 {
		c := m.Post(proxytest.MaxMessage)
		m.Do(c)
		long = append(long, c)
	}
	m.W.Run(60 * time.Millisecond) // the bodies are under way on the link
	var short []*proxytest.Call
	for range 10 {
		c := m.Post(300)
		m.Do(c)
		m.Finish(c)
		short = append(short, c)
	}
	for _, c := range long {
		if c.Done {
			t.Fatal("the long bodies were sent before the short requests began")
		}
	}
	m.Finish(long...)
	m.OK(append(append(long, short...), alone)...)
	window := time.Duration(float64(256<<10) / megabytes * float64(time.Second))
	for _, c := range short {
		if late := c.Took - alone.Took; late > 2*window {
			t.Errorf("a short request took %v longer beside long ones; a window takes %v", late, window)
		}
	}
	m.Settled()
}

// A connection that was accepted just before a drain closes after its first request.
func TestDrainClosesNewConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Consumer.Proc.Drain()
	m.W.Run(time.Millisecond)
	c := m.Post(10)
	cl := m.Do(c)
	m.OK(c)
	if !m.W.RunUntil(func() bool { return cl.Ended }, time.Second) {
		t.Error("the connection stays open")
	}
}

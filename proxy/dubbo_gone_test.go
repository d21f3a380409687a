package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestProvidersOfAServiceThatIsGone: a call that waits for a slot when its service goes
// is made all the same, and no connection stays behind.
func TestProvidersOfAServiceThatIsGone(t *testing.T) {
	for _, twoWay := range []bool{true, false} {
		t.Run(fmt.Sprint("two-way ", twoWay), func(t *testing.T) {
			m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", max_concurrency: 1"})
			a := m.apps[0]
			a.delay = func() time.Duration { return 50 * time.Millisecond }
			c := m.caller(egressDubbo)
			first := c.hessian("m", "x")
			waits := &dubbo.Frame{Request: true, TwoWay: twoWay, Serialization: dubbo.Hessian2, ID: 1, Body: hessianCall(demo, "", "", "m", "x")}
			if twoWay {
				c.out[waits.ID] = waits.Body
			}
			c.say(dubbo.AppendFrame(nil, waits))
			m.until("the first call", func() bool { return a.busy == 1 })
			m.consumer.reload(`
listeners: [{name: calls, address: "127.0.0.1:20881", protocol: dubbo}]
routes: [{service: other}]
services: {other: {discover: static, endpoints: ["10.0.9.9:1"], protocol: dubbo}}`)
			c.wants(first, dubbo.StatusOK, "")
			m.until("the second call", func() bool { return a.served == 2 })
			m.w.Run(time.Millisecond)
			for _, conn := range a.conns {
				if conn.open {
					t.Errorf("one of %d connections is left", a.dialed)
				}
			}
			if len(c.out) > 0 {
				t.Errorf("%d calls are not answered", len(c.out))
			}
			m.settled()
		})
	}
}

// TestEndpointsThatGoWhileTheyAreDialled: a connection for which nobody waits any more
// closes as it opens.
func TestEndpointsThatGoWhileTheyAreDialled(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", timeout: 1s, connect_timeout: 1m"})
	a := m.apps[0]
	c := m.caller(egressDubbo)
	m.w.Partition(m.consumer.loop.Name(), a.loop.Name())
	c.wants(c.hessian("m", "x"), dubbo.StatusServerTimeout, "")
	m.consumer.update("compute")
	m.w.Heal(m.consumer.loop.Name(), a.loop.Name())
	m.until("a connection", func() bool { return a.dialed == 1 })
	m.w.Run(10 * time.Millisecond)
	if a.conns[0].open {
		t.Error("the connection is left")
	}
	m.settled()
}

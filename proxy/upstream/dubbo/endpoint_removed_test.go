package dubbo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestRemovedServiceFinishesQueuedCalls checks that a call that is queued when a reload
// removes its service is still made, and that the connections close after it.
func TestRemovedServiceFinishesQueuedCalls(t *testing.T) {
	for _, twoWay := range []bool{true, false} {
		t.Run(fmt.Sprint("two-way ", twoWay), func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "max_concurrency: 1"})
			a := m.Apps[0]
			a.Delay = func() time.Duration { return 50 * time.Millisecond }
			c := m.DialDubbo(proxytest.EgressDubbo)
			first := c.CallHessian("m", "x")
			queued := &dubbo.Frame{Request: true, TwoWay: twoWay, Serialization: dubbo.Hessian2, ID: 1, Body: proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")}
			if twoWay {
				c.InFlight[queued.ID] = queued.Body
			}
			c.Send(dubbo.AppendFrame(nil, queued))
			m.RunUntil("the first call", func() bool { return a.Busy == 1 })
			m.Consumer.Reload(`
listeners: [{name: calls, address: "127.0.0.1:20881", protocol: dubbo}]
routes: [{service: other}]
services: {other: {discover: static, endpoints: ["10.0.9.9:1"], protocol: dubbo}}`)
			c.CheckResult(first, dubbo.StatusOK, "")
			m.RunUntil("the second call", func() bool { return a.Served == 2 })
			m.W.Run(time.Millisecond)
			for _, conn := range a.Conns {
				if conn.Open {
					t.Errorf("one of %d connections is still open", a.Accepted)
				}
			}
			if len(c.InFlight) > 0 {
				t.Errorf("%d calls have no response", len(c.InFlight))
			}
			m.Settled()
		})
	}
}

// TestEndpointRemovedWhileDialled checks that a connection closes as it opens if its
// endpoint was removed.
func TestEndpointRemovedWhileDialled(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 1s, connect_timeout: 1m"})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	m.W.Faults.Partition(m.Consumer.Loop.Name(), a.Loop.Name())
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusServerTimeout, "")
	m.Consumer.Update("compute")
	m.W.Faults.Heal(m.Consumer.Loop.Name(), a.Loop.Name())
	m.RunUntil("a connection", func() bool { return a.Accepted == 1 })
	m.W.Run(10 * time.Millisecond)
	if a.Conns[0].Open {
		t.Error("the connection is still open")
	}
	m.Settled()
}

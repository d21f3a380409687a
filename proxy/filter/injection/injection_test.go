package injection_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// injected returns the counts of the consumer's filters.
func injected(m *proxytest.Mesh) stats.FilterStats { return m.Consumer.Stats("compute").FilterStats }

// TestDelay: a delayed request is pending, reaches its application only after the delay, and is
// marked in the access log.
func TestDelay(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "fault: {delay: 100ms}", Limits: proxytest.LogAll})
	c := m.Post(300)
	m.Do(c)
	m.W.Run(50 * time.Millisecond)
	if n := m.Consumer.Proc.Pending(); n != 1 || m.Apps[0].Served != 0 {
		t.Errorf("%d requests pending and %d served within the delay, want 1 and 0", n, m.Apps[0].Served)
	}
	m.OK(c)
	if c.Took < 100*time.Millisecond || c.Took > 110*time.Millisecond {
		t.Errorf("the response came after %v, want 100 ms", c.Took)
	}
	m.Settled()
	if got := injected(m); got != (stats.FilterStats{Injects: true, Delayed: 1}) {
		t.Errorf("counted %+v", got)
	}
	if l := m.Consumer.OnlyAccessLine(); l.Fault != "delay" || l.Status != 200 || l.DurationMS < 100 {
		t.Errorf("the access log has %+v", l)
	}
}

// TestAbort: an aborted request gets the status and the code, and reaches no application. It
// counts for no breaker.
func TestAbort(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{
		Apps: 1, Match: "fault: {abort: 418}", Limits: proxytest.LogAll, Service: "breaker: {consecutive: 1, open: 1m}",
	})
	calls := m.Burst(3, 10)
	m.Finish(calls...)
	for _, c := range calls {
		if c.Status != 418 || c.Code != "fault-injected" {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
	}
	m.Settled()
	if m.Apps[0].Served != 0 || m.Consumer.BreakerState("compute") != stats.BreakerClosed {
		t.Errorf("the application served %d requests, the breaker is %d", m.Apps[0].Served, m.Consumer.BreakerState("compute"))
	}
	s, errs := m.Consumer.Stats("compute"), m.Consumer.Report().Stats.Errors
	if s.Aborted != 3 || s.Outcomes[stats.OutcomeFailed] != 3 || errs[stats.ErrorKey{Listener: "egress", Code: "fault-injected"}] != 3 {
		t.Errorf("counted %+v and errors %v", s.FilterStats, errs)
	}
	for _, l := range m.Consumer.AccessLines() {
		if l.Fault != "abort" || l.Error != "fault-injected" || l.Status != 418 {
			t.Errorf("the access log has %+v", l)
		}
	}
}

// TestDelayAndAbort: a request may have both faults.
func TestDelayAndAbort(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Match: "fault: {delay: 20ms, abort: 503}", Limits: proxytest.LogAll})
	c := m.Complete(m.Post(10))
	if c.Status != 503 || c.Code != "fault-injected" || c.Took < 20*time.Millisecond {
		t.Errorf("status %d %s after %v", c.Status, c.Code, c.Took)
	}
	m.Settled()
	if l := m.Consumer.OnlyAccessLine(); l.Fault != "delay,abort" {
		t.Errorf("the access log has %+v", l)
	}
}

// TestShares: of many requests, about the shares are delayed and aborted; others are as without.
func TestShares(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Match: "fault: {delay: 50ms, delay_share: 0.1, abort: 429, abort_share: 0.2}"},
		func(t *testing.T, m *proxytest.Mesh) {
			calls := m.Crowd(20, 100, 10)
			m.Finish(calls...)
			delayed := 0
			for _, c := range calls {
				if c.Took > 40*time.Millisecond {
					delayed++
				}
			}
			codes, s := proxytest.CountCodes(calls), injected(m)
			if codes["fault-injected"] < 300 || codes["fault-injected"] > 500 || codes[""] != len(calls)-codes["fault-injected"] {
				t.Errorf("responses %v", codes)
			}
			if delayed < 130 || delayed > 270 || s.Delayed != uint64(delayed) || s.Aborted != uint64(codes["fault-injected"]) {
				t.Errorf("%d delayed, counted %+v", delayed, s)
			}
			m.Settled()
		})
}

// TestCallerLeaves: a delayed request ends when its caller leaves, and reaches no application.
func TestCallerLeaves(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "fault: {delay: 1s}"})
	clients := []*proxytest.Client{m.Do(m.Post(10)), m.Do(m.Post(10_000))}
	m.W.Run(100 * time.Millisecond)
	for _, c := range clients {
		c.Leave()
	}
	m.W.Run(10 * time.Millisecond)
	if n, held := m.Consumer.Proc.Pending(), m.Consumer.Proc.Held(); n != 0 || held != 0 {
		t.Errorf("%d requests pending, %d bytes held after the callers have left", n, held)
	}
	again := m.Post(10) // its wait is reused
	m.Complete(again)
	m.OK(again)
	m.Settled()
	if m.Apps[0].Served != 1 {
		t.Errorf("the application served %d requests, want 1", m.Apps[0].Served)
	}
}

// TestDeadline: the delay is part of the time that a request has.
func TestDeadline(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "fault: {delay: 1s}"})
	c := m.Complete(m.Post(10, "x-remora-timeout-ms: 50"))
	if c.Status != 504 || c.Code != "deadline" || c.Took > 60*time.Millisecond {
		t.Errorf("status %d %s after %v", c.Status, c.Code, c.Took)
	}
	m.Settled()
	if m.Apps[0].Served != 0 {
		t.Error("the application got the request")
	}
}

// TestReload: requests that wait keep the faults with which they began; others have the new ones.
func TestReload(t *testing.T) {
	for name, routes := range map[string]string{
		"other faults":    `{service: compute, fault: {abort: 500}}`,
		"another service": `{service: other, fault: {abort: 500}}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Loops: 2, Match: "fault: {delay: 300ms}"})
			before := m.Burst(10, 10)
			m.W.Run(50 * time.Millisecond)
			m.Consumer.Reload(proxytest.ReloadYAML(m, routes, `compute: {%[1]s}, other: {%[1]s}`))
			after := m.Post(10)
			m.Do(after)
			m.Finish(append(before, after)...)
			m.OK(before...)
			if after.Status != 500 || after.Code != "fault-injected" {
				t.Errorf("after the reload: status %d %s", after.Status, after.Code)
			}
			m.Settled()
		})
	}
}

// TestDubbo: Dubbo calls have faults, too.
func TestDubbo(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Routes: "[{service: compute, fault: {delay: 20ms, abort: 503}}]"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	call := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
	began := m.W.Now()
	c.CheckRefused(7, proxytest.CallFrame(7, dubbo.Hessian2, call), dubbo.StatusOf(503), "fault-injected")
	if took := m.W.Now() - began; took < 20*time.Millisecond {
		t.Errorf("refused after %v, want 20 ms", took)
	}
	m.Settled()
}

package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// probingMesh returns a mesh whose consumer sends probes, and has links to all endpoints.
func probingMesh(t *testing.T, o proxytest.MeshOptions) *proxytest.Mesh {
	o.Service = proxytest.Fields(o.Service, "probe: on")
	m := proxytest.NewMesh(t, o)
	for range 4 {
		callRarely(m)
	}
	return m
}

// callRarely makes a call, after reports of load are forgotten.
func callRarely(m *proxytest.Mesh) *proxytest.Call {
	m.W.Run(2 * time.Second)
	return m.Complete(m.Post(10))
}

// occupy makes another caller send so many requests to the first provider, which last.
func occupy(m *proxytest.Mesh, requests uint64) {
	m.Apps[0].Delay = func() time.Duration { return time.Hour }
	w, p := m.DialLink()
	for id := range requests {
		w.Request(id+1, proxytest.LinkRequest, 2*time.Hour, nil)
	}
	m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
	m.W.Run(10 * time.Millisecond)
}

func probesOf(m *proxytest.Mesh) *stats.ProbeCounts { return &m.Consumer.Stats("compute").Probes }

// TestProbesFindIdleEndpoints: requests that are too rare for reports find the endpoints that other callers have
// left idle.
func TestProbesFindIdleEndpoints(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{Provider: "timeout: 3h"})
	occupy(m, 5)
	before := *probesOf(m)
	for range 30 {
		m.OK(callRarely(m))
	}
	got := probesOf(m)
	if n := m.Apps[0].Served; n > 4 {
		t.Errorf("the busy endpoint served %d requests, want those before it was busy", n)
	}
	if sent, answers, waits := got.Sent-before.Sent, got.Answers-before.Answers, got.Waits-before.Waits; sent != 90 || answers != 90 || waits != 30 || got.InVain > 0 {
		t.Errorf("%d probes, %d answers, %d waits, of which %d in vain", sent, answers, waits, got.InVain)
	}
	if n := m.Nodes[1].Stats("local").Probes.Answered; n < 30 {
		t.Errorf("the provider answered %d probes", n)
	}
}

// TestFreshAnswersAreUsed: a request soon after another does not wait, since the answers are fresh.
func TestFreshAnswersAreUsed(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{})
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return 100 * time.Millisecond }
	}
	for range 40 { // until the latencies are known
		callRarely(m)
	}
	before := probesOf(m).Waits
	calls := []*proxytest.Call{m.Post(10), m.Post(10)}
	m.Do(calls[0])
	m.W.Run(10 * time.Millisecond)
	m.Do(calls[1])
	m.Finish(calls...)
	if n := probesOf(m).Waits - before; n != 1 {
		t.Errorf("%d of 2 requests waited", n)
	}
}

// TestProbesOfSilentSidecars: a request waits a few milliseconds for answers that do not come, and such waits become rare.
func TestProbesOfSilentSidecars(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{Service: "hedge: {mode: on, delay: 20ms}, idempotent: true"})
	for range 20 {
		m.W.Run(2 * time.Second)
		m.W.Faults.Pause(m.Nodes[1].Loop, 300*time.Millisecond)
		m.W.Faults.Pause(m.Nodes[2].Loop, 300*time.Millisecond)
		m.OK(m.Complete(m.Post(10)))
	}
	if got := probesOf(m); got.InVain < 2 || got.InVain > 6 {
		t.Errorf("%d waits in vain in 20 requests", got.InVain)
	}
	m.Settled()
}

// TestLeaveDuringProbes: a client leaves while its request waits for answers.
func TestLeaveDuringProbes(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{})
	served := m.Apps[0].Served + m.Apps[1].Served + m.Apps[2].Served
	for _, n := range m.Nodes[1:] {
		m.W.Faults.Pause(n.Loop, time.Second)
	}
	sent := probesOf(m).Sent
	c := m.Do(m.Post(10))
	m.RunUntil("probes", func() bool { return probesOf(m).Sent > sent })
	m.Clients.Do(func() { sim.Abort(c.Conn) })
	m.W.Run(3 * time.Second)
	if n := m.Apps[0].Served + m.Apps[1].Served + m.Apps[2].Served; n != served {
		t.Errorf("%d requests of a client that had left were served", n-served)
	}
	m.OK(callRarely(m))
	m.Settled()
}

// TestDeadlineDuringProbes: the deadline of a request passes while it waits for answers.
func TestDeadlineDuringProbes(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{})
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return 100 * time.Millisecond }
	}
	for range 40 { // until the latencies are known, by which the wait is longer
		callRarely(m)
	}
	m.W.Run(2 * time.Second)
	for _, n := range m.Nodes[1:] {
		m.W.Faults.Pause(n.Loop, time.Second)
	}
	c := m.Complete(m.Post(10, "x-remora-timeout-ms: 2"))
	if c.Status != 504 {
		t.Errorf("status %d %s", c.Status, c.Code)
	}
	m.Settled()
}

// TestProbesWithEjected: an ejected endpoint gets the request that may end its ejection, although it is not the best one.
func TestProbesWithEjected(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{Service: "outlier: {consecutive: 1, base: 1s}, retry: {on: []}", Provider: "timeout: 3h"})
	sick := m.Apps[0]
	sick.Status = 500
	for m.Consumer.Stats("compute").Ejections[outlier.ByConsecutive] == 0 {
		callRarely(m)
	}
	sick.Status = 200
	occupy(m, 5)
	sick.Delay = func() time.Duration { return time.Millisecond }
	before := sick.Served
	m.W.Run(time.Minute)
	for range 3 {
		m.OK(callRarely(m))
	}
	if got := sick.Served - before; got != 1 {
		t.Errorf("the endpoint, which is healthy and busy, got %d requests", got)
	}
}

// TestProviderWithoutProbes: a provider without the feature gets no PROBE.
func TestProviderWithoutProbes(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "probe: on"})
	m.LinkResponder()
	for range 20 {
		m.W.Run(2 * time.Second)
		m.Do(m.Post(10))
	}
	for _, n := range m.Nodes[2:] {
		if n.Stats("local").Probes.Answered == 0 {
			t.Errorf("%s has answered no probe", n.Host)
		}
	}
	if got := probesOf(m); got.Sent != got.Answers {
		t.Errorf("%d probes, %d answers", got.Sent, got.Answers)
	}
}

// TestProviderAnswers: an ANSWER has the load of the service.
func TestProviderAnswers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{})
	occupy(m, 3)
	w, p := m.DialLink()
	w.Probe()
	m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
	m.W.Run(10 * time.Millisecond)
	var got answers
	if err := link.NewDialer(link.Settings{}, link.ReaderLimits{}, &got).Feed(p.Heard); err != nil {
		t.Fatal(err)
	}
	if len(got.loads) != 1 || got.loads[0].Pending != 3 {
		t.Errorf("answers %+v", got.loads)
	}
}

// answers are the ANSWERs of an acceptor.
type answers struct {
	proxytest.Refusals
	loads []link.Load
}

func (a *answers) OnAnswer(l link.Load) { a.loads = append(a.loads, l) }

// TestUnaskedAnswers: ANSWERs that no PROBE has asked for change nothing.
func TestUnaskedAnswers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "probe: on"})
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	says := w.Append(nil, 1<<20)
	for range 100 {
		w.Answer(link.Load{})
		says = w.Append(says, 1<<20)
	}
	m.ReplaceProvider(&proxytest.Peer{Says: says})
	for range 3 {
		m.W.Run(2 * time.Second)
		m.Do(m.Post(10))
	}
	m.W.Run(time.Second)
	if got := probesOf(m); got.Answers > got.Sent {
		t.Errorf("%d answers to %d probes", got.Answers, got.Sent)
	}
}

// TestPrimaryAvoidsHedge: a hedge may leave while its primary waits for answers. Then the primary goes to another
// endpoint, also if the best answer is that of the hedge's endpoint.
func TestPrimaryAvoidsHedge(t *testing.T) {
	m := probingMesh(t, proxytest.MeshOptions{Service: "idempotent: true, hedge: {mode: on, delay: 500us, budget: 0.5}"})
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return 20 * time.Millisecond }
	}
	hedged := 0
	for range 20 {
		m.W.Run(2 * time.Second)
		before := [3]int{m.Apps[0].Served, m.Apps[1].Served, m.Apps[2].Served}
		m.W.Faults.Pause(m.Nodes[1].Loop, 2*time.Millisecond) // its answer comes after the hedge has left
		m.OK(m.Complete(m.Post(10)))
		m.W.Run(time.Second)
		all := 0
		for i, a := range m.Apps {
			n := a.Served - before[i]
			if n > 1 {
				t.Errorf("application %d served %d attempts of a request", i+1, n)
			}
			all += n
		}
		hedged += all - 1
	}
	if hedged == 0 {
		t.Error("no hedge was sent")
	}
}

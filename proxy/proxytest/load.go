package proxytest

import (
	"fmt"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// BurstWhilePaused sends n requests and pauses the consumer's loop for d while their
// responses arrive, as when other processes have the CPU.
func (m *Mesh) BurstWhilePaused(n int, d time.Duration) {
	m.T.Helper()
	m.W.Options.Cut = 0
	seen := 0
	for _, a := range m.Apps {
		a.OnRequest = func(*protocol.Request) { seen++ }
	}
	calls := m.Burst(n, 10)
	if !m.W.RunUntil(func() bool { return seen == n }, time.Second) {
		m.T.Fatalf("%d of %d requests have reached an application", seen, n)
	}
	m.W.Faults.Pause(m.Consumer.Loop, d)
	m.OK(calls...)
}

// CountServed runs n calls of each of so many clients, and returns the number of requests
// that each application served.
func (m *Mesh) CountServed(clients, n int) []int {
	m.T.Helper()
	before := make([]int, len(m.Apps))
	for i, a := range m.Apps {
		before[i] = a.Served
	}
	m.Finish(m.Crowd(clients, n, 10)...)
	for i, a := range m.Apps {
		before[i] = a.Served - before[i]
	}
	return before
}

// Fault is a kind of InjectFault. Without a provider's sidecar, only those at the application are possible.
type Fault int

// The faults of a provider.
const (
	CrashSidecar Fault = iota
	CrashApp
	FreezeApp
	FreezeSidecar
	ResetConsumer // the connections from the consumer
	ResetApp      // those to the application
	NumFaults
)

// InjectFault makes a fault at provider i, for less than 80 ms.
func (m *Mesh) InjectFault(kind Fault, i int) {
	app := m.Apps[i]
	var provider *Node
	if !m.OneHop {
		provider = m.Nodes[i+1]
	}
	later := m.W.Now() + 50*time.Millisecond
	switch kind {
	case CrashSidecar:
		provider.Crash()
		proc := provider.Proc
		m.W.At(later, func() {
			if provider.Proc == proc {
				provider.Restart(app)
			}
		})
	case CrashApp:
		m.W.Faults.Crash(app.Loop)
		loop := app.Loop
		m.W.At(later, func() {
			if app.Loop == loop {
				app.restart()
			}
		})
	case FreezeApp:
		m.W.Faults.Pause(app.Loop, 50*time.Millisecond)
	case FreezeSidecar:
		for _, l := range provider.Loops {
			m.W.Faults.Pause(l, 50*time.Millisecond)
		}
	case ResetConsumer:
		m.W.Faults.ResetAll(m.Consumer.Host, provider.Host)
	case ResetApp:
		m.W.Faults.ResetAll(provider.Host, app.Host+"-app")
	}
}

// WarmUpEach sends n requests to every application at once, so that n connections to it are
// open and idle.
func (m *Mesh) WarmUpEach(n int) {
	m.T.Helper()
	calls := m.Burst(n*len(m.Apps), 10)
	m.OK(calls...)
	for i, a := range m.Apps {
		if a.Served != n {
			m.T.Fatalf("application %d has served %d, want %d", i, a.Served, n)
		}
	}
}

// ServedBy sends a request and returns the application that served it and its path, or the
// error code.
func (m *Mesh) ServedBy(request *Call) string {
	m.T.Helper()
	var by string
	for i, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) { by = fmt.Sprintf("%c %s", 'a'+i, req.Path) }
	}
	m.Do(request)
	m.Finish(request)
	if request.Code != "" {
		return request.Code
	}
	return by
}

// RecordAllSpans records the spans of every node, by its host.
func (m *Mesh) RecordAllSpans() map[string]*records {
	all := map[string]*records{}
	for _, n := range m.Nodes {
		all[n.Host] = n.RecordSpans()
	}
	return all
}

package proxytest

import (
	"bytes"
	"fmt"
	"log/slog"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// Node is one sidecar.
type Node struct {
	m       *Mesh
	Host    string
	Loop    *sim.Loop   // the first one
	Loops   []*sim.Loop // one for each worker; worker i listens on port + i
	Proc    *proxy.Process
	Cfg     *config.Config
	Stop    []func() // functions that close the listeners
	log     *accessFile
	LogText bytes.Buffer // its log
}

// Report returns the report of the node's first loop.
func (n *Node) Report() (r stats.WorkerReport) {
	n.Loop.Do(func() { r = n.Proc.Workers()[0].Report(stats.Forecasts) })
	return r
}

// Restart starts a crashed provider again, without state, on its old addresses.
func (n *Node) Restart(app *App) {
	n.Start()
	n.Listen(15006)
	n.Update("local", registry.Endpoint{Addr: app.Addr, Weight: 1})
}

// accept opens one listener on the first loop.
func (n *Node) accept(listener, port int) {
	worker, at := n.Proc.Workers()[0], n.Proc.Generation().Listener(n.Cfg.Listeners[listener].Name)
	accept := func() loop.Receiver { return at.Accept(worker) }
	n.Stop = append(n.Stop, n.m.W.Net.Listen(fmt.Sprintf("%s:%d", n.Host, port), n.Loop, accept))
}

// BreakerState returns the state of a service's breaker on the node's first loop.
func (n *Node) BreakerState(service string) (state stats.BreakerState) {
	n.Loop.Do(func() {
		for _, s := range n.Proc.Workers()[0].Report(stats.Forecasts).Services {
			if s.Name == service {
				state = s.Breaker
			}
		}
	})
	return state
}

// Start starts a new process, without listeners.
func (n *Node) Start() {
	n.Proc = proxy.NewProcess(n.Cfg, n.m.Loops)
	n.Proc.SetWall(func() time.Time { return Epoch.Add(n.m.W.Now()) })
	n.Loops, n.Stop = nil, nil
	n.openAccessLog()
	log := slog.New(slog.NewTextHandler(&n.LogText, nil))
	for i := range n.m.Loops {
		name := n.Host
		if i > 0 {
			name = fmt.Sprintf("%s/%d", n.Host, i)
		}
		n.Loops = append(n.Loops, n.m.W.Loop(name))
		var loop loop.Loop = n.Loops[i]
		if n.m.dialler != nil {
			loop = n.m.dialler(loop)
		}
		proxy.NewWorker(n.Proc, loop, log, uint64(i+1))
	}
	n.Loop = n.Loops[0]
}

// Listen opens the first listener: on port for the first loop, port + 1 for the second.
func (n *Node) Listen(port int) {
	listener := n.Proc.Generation().Listener(n.Cfg.Listeners[0].Name)
	for i, worker := range n.Proc.Workers() {
		addr := fmt.Sprintf("%s:%d", n.Host, port+i)
		accept := func() loop.Receiver { return listener.Accept(worker) }
		n.Stop = append(n.Stop, n.m.W.Net.Listen(addr, n.Loops[i], accept))
	}
}

// Crash ends all loops of the process at once.
func (n *Node) Crash() {
	for _, l := range n.Loops {
		n.m.W.Faults.Crash(l)
	}
}

// Update gives the node a snapshot of a service's endpoints.
func (n *Node) Update(service string, eps ...registry.Endpoint) {
	n.Proc.Update(registry.NewSnapshot(service, registry.SourceLive, time.Time{}, eps))
}

// Stats returns the node's counts of a service.
func (n *Node) Stats(service string) *stats.ServiceStats {
	sum := &stats.ServiceStats{}
	for _, w := range n.Proc.Workers() {
		sum.Add(w.ServiceStats(service))
	}
	return sum
}

// Milliseconds returns the sum of the loops' milliseconds from number from on.
func (n *Node) Milliseconds(from int64) stats.Milliseconds {
	var sum stats.Milliseconds
	for i, w := range n.Proc.Workers() {
		var ms stats.Milliseconds
		n.Loops[i].Do(func() { ms, _ = w.Milliseconds("", from) })
		if i == 0 {
			sum = ms
			continue
		}
		for j := range min(len(sum.List), len(ms.List)) {
			sum.List[j].Add(&ms.List[j])
		}
	}
	return sum
}

// Reload switches the node to a configuration. New services get the mesh's applications as
// endpoints.
func (n *Node) Reload(yaml string) {
	n.m.T.Helper()
	cfg, err := config.Parse("new.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		n.m.T.Fatal(err)
	}
	done := false
	finished := func() { done = true }
	g := n.Proc.Prepare(cfg, finished)
	n.m.RunUntil("the loops to be ready", func() bool { return done })
	var all []registry.Endpoint
	for i := range n.m.Apps {
		all = append(all, n.m.Endpoint(i))
	}
	for _, name := range g.Added() {
		g.Update(registry.NewSnapshot(name, registry.SourceLive, time.Time{}, all))
	}
	n.m.RunUntil("the loops to know the endpoints", g.Known)
	done = false
	n.Proc.Switch(g, finished)
	n.m.RunUntil("the loops to switch", func() bool { return done })
	n.Cfg = cfg
}

// Connections returns the number of open connections that the node has accepted.
func (n *Node) Connections() (sum int) {
	for i, w := range n.Proc.Workers() {
		n.Loops[i].Do(func() { sum += w.Report(stats.Forecasts).Stats.Connections })
	}
	return sum
}

// CheckBelowHardMark checks that the node is below the hard mark and has closed no
// connection for it.
func (n *Node) CheckBelowHardMark() {
	n.m.T.Helper()
	if held := n.Proc.Held(); held > HardMark+64<<10 {
		n.m.T.Errorf("%d bytes held, over the hard mark of %d", held, HardMark)
	}
	if c := n.ShedConnections(); c != 0 {
		n.m.T.Errorf("%d connections were shed, want none", c)
	}
}

// CheckShedRequests checks that the node has shed some requests of a total, but not each.
func (n *Node) CheckShedRequests(all uint64) {
	n.m.T.Helper()
	if given := n.Report().Stats.Errors.Of("shed"); given == 0 || given >= all {
		n.m.T.Errorf("%d of %d requests were shed, want some", given, all)
	}
}

// ShedConnections returns the number of connections that the node has closed because of
// their memory.
func (n *Node) ShedConnections() (count uint64) {
	for i, w := range n.Proc.Workers() {
		n.Loops[i].Do(func() { count += w.Report(stats.Forecasts).Stats.Shed })
	}
	return count
}

// WriteTimeouts returns the number of connections that the node has closed because the peer
// took no output.
func (n *Node) WriteTimeouts() (count uint64) {
	for i, w := range n.Proc.Workers() {
		n.Loops[i].Do(func() { count += w.Report(stats.Forecasts).Stats.WriteTimeouts })
	}
	return count
}

// RecordSpans returns a list that gets the spans of the node.
func (n *Node) RecordSpans() *records {
	l := new(records)
	n.Proc.SetSpans(l)
	return l
}

// ReloadYAML returns the configuration of a consumer with these routes and services. %s in
// services stands for the settings of a service of m.
func ReloadYAML(m *Mesh, routes, services string) string {
	protocol := "link"
	if m.OneHop {
		protocol = "http"
	}
	return fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [%s]
services: {%s}`, routes, fmt.Sprintf(services, `discover: static, endpoints: ["10.0.9.9:1"], protocol: `+protocol))
}

package proxytest

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// Report is what the node's only loop tells of itself.
func (n *Node) Report() (r stats.WorkerReport) {
	n.Loop.Do(func() { r = n.Proc.Workers()[0].Report() })
	return r
}

// Restart brings a crashed node back, empty, on its old addresses.
func (n *Node) Restart(app *App) {
	n.Start()
	n.Listen(15006)
	n.Update("local", registry.Endpoint{Addr: app.Addr, Weight: 1})
}

// accept is listen for one listener of the first loop.
func (n *Node) accept(listener, port int) {
	worker, entrance := n.Proc.Workers()[0], n.Proc.Generation().Listener(n.Cfg.Listeners[listener].Name)
	accept := func() loop.Stream { return entrance.Accept(worker) }
	n.Stop = append(n.Stop, n.m.W.Listen(fmt.Sprintf("%s:%d", n.Host, port), n.Loop, accept))
}

// Breaker is the state as the node's first loop sees it.
func (n *Node) Breaker(service string) (state stats.BreakerState) {
	n.Loop.Do(func() {
		for _, s := range n.Proc.Workers()[0].Report().Services {
			if s.Name == service {
				state = s.Breaker
			}
		}
	})
	return state
}

// Start brings up a fresh process, as after a restart.
func (n *Node) Start() {
	n.Proc = proxy.NewProcess(n.Cfg, n.m.Loops)
	n.Proc.SetWall(func() time.Time { return Epoch.Add(n.m.W.Now()) })
	n.All, n.Stop = nil, nil
	n.openAccessLog()
	log := slog.New(slog.NewTextHandler(&n.Said, nil))
	for i := range n.m.Loops {
		name := n.Host
		if i > 0 {
			name = fmt.Sprintf("%s/%d", n.Host, i)
		}
		n.All = append(n.All, n.m.W.Loop(name))
		var loop loop.Loop = n.All[i]
		if n.m.dialler != nil {
			loop = n.m.dialler(loop)
		}
		proxy.NewWorker(n.Proc, loop, log, uint64(i+1))
	}
	n.Loop = n.All[0]
}

func (n *Node) Listen(port int) {
	entrance := n.Proc.Generation().Listener(n.Cfg.Listeners[0].Name)
	for i, worker := range n.Proc.Workers() {
		addr := fmt.Sprintf("%s:%d", n.Host, port+i)
		accept := func() loop.Stream { return entrance.Accept(worker) }
		n.Stop = append(n.Stop, n.m.W.Listen(addr, n.All[i], accept))
	}
}

// Crash ends the process, all its loops at once.
func (n *Node) Crash() {
	for _, l := range n.All {
		n.m.W.Crash(l)
	}
}

func (n *Node) Update(service string, eps ...registry.Endpoint) {
	n.Proc.Update(registry.NewSnapshot(service, registry.SourceLive, time.Time{}, eps))
}

// Stats are the node's counts for a service.
func (n *Node) Stats(service string) *stats.ServiceStats {
	sum := &stats.ServiceStats{}
	for _, w := range n.Proc.Workers() {
		sum.Add(w.ServiceStats(service))
	}
	return sum
}

// Milliseconds are what the node's loops saw from one on, added up.
func (n *Node) Milliseconds(from int64) stats.Milliseconds {
	var sum stats.Milliseconds
	for i, w := range n.Proc.Workers() {
		var ms stats.Milliseconds
		n.All[i].Do(func() { ms = w.Milliseconds(from) })
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

// Reload makes the node ready for a configuration; services that are new get the
// mesh's endpoints.
func (n *Node) Reload(yaml string) {
	n.m.T.Helper()
	cfg, err := config.Parse("new.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		n.m.T.Fatal(err)
	}
	done := false
	finished := func() { done = true }
	g := n.Proc.Prepare(cfg, finished)
	n.m.Until("the loops to be ready", func() bool { return done })
	var all []registry.Endpoint
	for i := range n.m.Apps {
		all = append(all, n.m.Endpoint(i))
	}
	for _, name := range g.Added() {
		g.Update(registry.NewSnapshot(name, registry.SourceLive, time.Time{}, all))
	}
	n.m.Until("the loops to know the endpoints", g.Known)
	done = false
	n.Proc.Switch(g, finished)
	n.m.Until("the loops to switch", func() bool { return done })
	n.Cfg = cfg
}

// Connections is how many connections the node has accepted that are open.
func (n *Node) Connections() (sum int) {
	for i, w := range n.Proc.Workers() {
		n.All[i].Do(func() { sum += w.Report().Stats.Connections })
	}
	return sum
}

// Bounded checks that a node keeps below the hard mark without closing a
// connection.
func (n *Node) Bounded() {
	n.m.T.Helper()
	if held := n.Proc.Held(); held > HardMark+64<<10 {
		n.m.T.Errorf("%d bytes held, over the hard mark of %d", held, HardMark)
	}
	if c := n.Shed(); c != 0 {
		n.m.T.Errorf("%d connections closed, want none", c)
	}
}

// GaveUp checks that a node has given up some of all requests, but not each.
func (n *Node) GaveUp(all uint64) {
	n.m.T.Helper()
	if given := n.Report().Stats.Errors["shed"]; given == 0 || given >= all {
		n.m.T.Errorf("%d of %d requests given up, want some", given, all)
	}
}

// Shed is how many connections the node has closed for what they held.
func (n *Node) Shed() (count uint64) {
	for i, w := range n.Proc.Workers() {
		n.All[i].Do(func() { count += w.Report().Stats.Shed })
	}
	return count
}

// WriteTimeouts is how many connections the node has closed for it.
func (n *Node) WriteTimeouts() (count uint64) {
	for i, w := range n.Proc.Workers() {
		n.All[i].Do(func() { count += w.Report().Stats.WriteTimeouts })
	}
	return count
}

// Spy has the node's records go to a list.
func (n *Node) Spy() *records {
	l := new(records)
	n.Proc.SetSpans(l)
	return l
}

// Reloaded is the configuration of a consumer whose listener leads by routes to
// services of that kind.
func Reloaded(m *Mesh, routes, services string) string {
	protocol := "link"
	if m.Direct {
		protocol = "http"
	}
	return fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [%s]
services: {%s}`, routes, fmt.Sprintf(services, `discover: static, endpoints: ["10.0.9.9:1"], protocol: `+protocol))
}

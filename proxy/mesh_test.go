package proxy_test

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/registry"
)

// mesh is a consumer's sidecar, and a number of applications, each beside a
// provider's sidecar or not, on the simulator.
type mesh struct {
	t        *testing.T
	w        *sim.World
	consumer *node
	nodes    []*node // consumer first
	apps     []*app
	clients  *sim.Loop
	nonces   int
	direct   bool // no provider's sidecar
	loops    int  // of each sidecar
	dialler  func(proxy.Loop) proxy.Loop
}

// node is one sidecar.
type node struct {
	m    *mesh
	host string
	loop *sim.Loop   // the first one
	all  []*sim.Loop // one for each worker; worker i listens on port + i
	proc *proxy.Process
	cfg  *config.Config
	stop []func() // closes listeners
	log  *accessFile
	said bytes.Buffer // its log
}

// epoch is the time of day at which simulations begin.
var epoch = time.Date(2026, 3, 29, 23, 59, 59, 900e6, time.UTC)

const (
	egress     = "10.0.0.1:15001"
	maxMessage = 4 << 20
)

// meshOptions shape a mesh; the zero value is three applications, each beside a
// sidecar, and hedging off.
type meshOptions struct {
	seed     uint64
	apps     int
	direct   bool   // HTTP straight to the applications, no provider's sidecar
	service  string // YAML of the consumer's service, beyond discover and protocol
	provider string // YAML of the provider's service local
	limits   string // YAML at top level of both
	listener string // YAML of the consumer's listener
	egress   string // its address; default on loopback
	ingress  string // YAML of the providers' listeners
	match    string // YAML of the consumer's route, before its service

	loops     int   // of each sidecar; default 1
	bandwidth int64 // bytes per second between hosts; 0: no limit

	nodes     func(m *mesh) // called when the sidecars are there, before any traffic
	noSockets bool          // with streams: connections can't leave their loops

	dialler func(proxy.Loop) proxy.Loop // what the sidecars dial by, made of a loop
}

func newMesh(t *testing.T, o meshOptions) *mesh {
	t.Helper()
	if o.apps == 0 {
		o.apps = 3
	}
	m := &mesh{t: t, w: sim.New(o.seed), direct: o.direct, loops: max(1, o.loops), dialler: o.dialler}
	m.w.OnFailure(t)
	if o.bandwidth > 0 {
		m.w.Net(func(from, to string) sim.Path {
			p := sim.DefaultNet(from, to)
			p.Bandwidth = o.bandwidth
			return p
		})
	}
	m.clients = m.w.Loop("10.0.0.1-client")
	protocolName := "link"
	if o.direct {
		protocolName = "http"
	}
	m.consumer = m.node("10.0.0.1", fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http%s}]
routes: [{%sservice: compute}]
services:
  compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %s%s}
%s`, cmp.Or(o.egress, "127.0.0.1:15001"), o.listener, o.match, protocolName, o.service, o.limits))
	m.consumer.listen(15001)

	var endpoints []registry.Endpoint
	for i := range o.apps {
		host := fmt.Sprintf("10.0.1.%d", i+1)
		a := newApp(m, host)
		m.apps = append(m.apps, a)
		endpoints = append(endpoints, m.endpoint(i))
		if o.direct {
			continue
		}
		p := m.node(host, fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local%s}]
services:
  local: {discover: static, endpoints: ["%s"], protocol: http%s}
%s`, o.ingress, a.addr, o.provider, o.limits))
		p.listen(15006)
		p.update("local", registry.Endpoint{Addr: a.addr, Weight: 1})
	}
	if o.nodes != nil {
		o.nodes(m)
	}
	m.consumer.update("compute", endpoints...)
	m.w.Run(time.Millisecond)
	return m
}

func (m *mesh) node(host, yaml string) *node {
	m.t.Helper()
	cfg, err := config.Parse(host+".yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		m.t.Fatal(err)
	}
	n := &node{m: m, host: host, cfg: cfg}
	n.start()
	m.nodes = append(m.nodes, n)
	return n
}

// start brings up a fresh process, as after a restart.
func (n *node) start() {
	n.proc = proxy.NewProcess(n.cfg, n.m.loops)
	n.proc.SetWall(func() time.Time { return epoch.Add(n.m.w.Now()) })
	n.all, n.stop = nil, nil
	n.openAccessLog()
	log := slog.New(slog.NewTextHandler(&n.said, nil))
	for i := range n.m.loops {
		name := n.host
		if i > 0 {
			name = fmt.Sprintf("%s/%d", n.host, i)
		}
		n.all = append(n.all, n.m.w.Loop(name))
		var loop proxy.Loop = n.all[i]
		if n.m.dialler != nil {
			loop = n.m.dialler(loop)
		}
		proxy.NewWorker(n.proc, loop, log, uint64(i+1))
	}
	n.loop = n.all[0]
}

func (n *node) listen(port int) {
	entrance := n.proc.Generation().Entrance(n.cfg.Listeners[0].Name)
	for i, worker := range n.proc.Workers() {
		addr := fmt.Sprintf("%s:%d", n.host, port+i)
		accept := func() proxy.Stream { return entrance.Accept(worker) }
		n.stop = append(n.stop, n.m.w.Listen(addr, n.all[i], accept))
	}
}

// crash ends the process, all its loops at once.
func (n *node) crash() {
	for _, l := range n.all {
		n.m.w.Crash(l)
	}
}

func (n *node) update(service string, eps ...registry.Endpoint) {
	n.proc.Update(registry.NewSnapshot(service, registry.SourceLive, time.Time{}, eps))
}

// endpoint is application i as the consumer's registry has it.
func (m *mesh) endpoint(i int) registry.Endpoint {
	a := m.apps[i]
	if m.direct {
		return registry.Endpoint{Addr: a.addr, Weight: 1}
	}
	return registry.Endpoint{Addr: a.host + ":15006", Weight: 1}
}

// settled checks that nothing is pending or held anywhere.
func (m *mesh) settled() {
	m.t.Helper()
	idle := func() bool {
		for _, n := range m.nodes {
			if n.proc.Pending() != 0 || n.proc.Held() != 0 {
				return false
			}
		}
		return true
	}
	if !m.w.RunUntil(idle, time.Minute) {
		m.t.Error("requests or message bytes are left after a minute")
	}
	for _, n := range m.nodes {
		if p := n.proc.Pending(); p != 0 {
			m.t.Errorf("%s has %d requests pending", n.host, p)
		}
		if b := n.proc.Held(); b != 0 {
			m.t.Errorf("%s holds %d bytes of messages with nothing pending", n.host, b)
		}
		for service := range n.cfg.Services {
			if used, queued := n.proc.Slots(service); used != 0 || queued != 0 {
				m.t.Errorf("%s: %d slots in use, %d queued, with nothing pending", n.host, used, queued)
			}
		}
		for i, w := range n.proc.Workers() {
			var report proxy.WorkerReport
			n.all[i].Do(func() { report = w.Report() })
			for _, s := range report.Services {
				if s.HedgesInFlight != 0 {
					m.t.Errorf("%s: %d hedges in flight, with nothing pending", n.host, s.HedgesInFlight)
				}
				for _, e := range s.Endpoints {
					if e.Pending != 0 {
						m.t.Errorf("%s: %d attempts counted at %s, with nothing pending", n.host, e.Pending, e.Addr)
					}
				}
			}
		}
	}
}

// stats are the node's counts for a service.
func (n *node) stats(service string) *proxy.ServiceStats {
	sum := &proxy.ServiceStats{}
	for _, w := range n.proc.Workers() {
		sum.Add(w.ServiceStats(service))
	}
	return sum
}

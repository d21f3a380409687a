package proxytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// Mesh is sidecars and applications on the simulator: a consumer's sidecar, and applications,
// each beside a provider's sidecar unless OneHop is set. Its Callers drive it. What
// applications do is set on Apps, and streams are opened at a Node.
type Mesh struct {
	*Callers
	Consumer *Node
	Nodes    []*Node // consumer first
	Apps     Apps
	OneHop   bool // no provider's sidecar
	Loops    int  // of each sidecar
	dialler  func(loop.Loop) loop.Loop
}

// Epoch is the time of day at which simulations begin.
var Epoch = time.Date(2026, 3, 29, 23, 59, 59, 900e6, time.UTC)

// The address of the consumer's listener, and the default of limits.message in bytes.
const (
	Egress     = "10.0.0.1:15001"
	MaxMessage = 4 << 20
)

// MeshOptions are the options of a Mesh. The zero value means three applications, each
// beside a sidecar, and hedging off.
type MeshOptions struct {
	Seed     uint64
	Apps     int
	OneHop   bool   // HTTP straight to the applications, no provider's sidecar
	Speaks   string // protocol of the applications; default http
	Service  string // YAML fields of the consumer's service, besides discover and protocol
	Provider string // YAML fields of the provider's service local
	Limits   string // YAML at top level of both
	Listener string // YAML fields of the consumer's listener
	Egress   string // its address; default on loopback
	Ingress  string // YAML fields of the providers' listeners
	Match    string // YAML fields of the consumer's route, besides its service

	Loops     int   // of each sidecar; default 1
	Bandwidth int64 // bytes per second between hosts; 0 means no limit

	nodes     func(m *Mesh) // called when the sidecars run, before any traffic
	NoSockets bool          // with streams: connections can't leave their loops

	Dialler func(loop.Loop) loop.Loop // returns the loop by which a sidecar dials; nil means its own
}

// NewMesh returns a mesh that is ready for requests.
func NewMesh(t *testing.T, o MeshOptions) *Mesh {
	t.Helper()
	if o.Apps == 0 {
		o.Apps = 3
	}
	m := &Mesh{Callers: newCallers(t, o.Seed), OneHop: o.OneHop, Loops: max(1, o.Loops), dialler: o.Dialler}
	if o.Bandwidth > 0 {
		m.W.Net.SetPaths(func(from, to string) sim.Path {
			p := sim.DefaultPaths(from, to)
			p.Bandwidth = o.Bandwidth
			return p
		})
	}
	speaks := cmp.Or(o.Speaks, "http")
	protocolName := "link"
	if o.OneHop {
		protocolName = speaks
	}
	m.Consumer = m.Node("10.0.0.1", fmt.Sprintf(`
listeners: [{%s}]
routes: [{%s}]
services:
  compute: {%s}
%s`, Fields(fmt.Sprintf("name: egress, address: %q, protocol: http", cmp.Or(o.Egress, "127.0.0.1:15001")), o.Listener),
		Fields(o.Match, "service: compute"),
		Fields(`discover: static, endpoints: ["10.0.9.9:1"], protocol: `+protocolName, o.Service), o.Limits))
	m.Consumer.Listen(15001)

	var endpoints []registry.Endpoint
	for i := range o.Apps {
		host := fmt.Sprintf("10.0.1.%d", i+1)
		a := newApp(m, host)
		m.Apps = append(m.Apps, a)
		endpoints = append(endpoints, m.Endpoint(i))
		if o.OneHop {
			continue
		}
		p := m.Node(host, fmt.Sprintf(`
listeners: [{%s}]
services:
  local: {%s}
%s`, Fields(`name: ingress, address: "127.0.0.1:15006", protocol: link, service: local`, o.Ingress),
			Fields(fmt.Sprintf("discover: static, endpoints: [%q], protocol: %s", a.Addr, speaks), o.Provider), o.Limits))
		p.Listen(15006)
		p.Update("local", registry.Endpoint{Addr: a.Addr, Weight: 1})
	}
	if o.nodes != nil {
		o.nodes(m)
	}
	m.Consumer.Update("compute", endpoints...)
	m.W.Run(time.Millisecond)
	return m
}

// Fields joins fields of a YAML mapping. Empty ones are left out.
func Fields(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ", ")
}

// EachTopology runs a test with the applications called straight over HTTP, and
// with a sidecar beside each.
func EachTopology(t *testing.T, o MeshOptions, f func(t *testing.T, m *Mesh)) {
	t.Run("one hop", func(t *testing.T) {
		o.OneHop = true
		f(t, NewMesh(t, o))
	})
	t.Run("two hops", func(t *testing.T) {
		o.OneHop = false
		f(t, NewMesh(t, o))
	})
}

// Node starts a sidecar with a configuration.
func (m *Mesh) Node(host, yaml string) *Node {
	m.T.Helper()
	cfg, err := config.Parse(host+".yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		m.T.Fatal(err)
	}
	n := &Node{m: m, Host: host, Cfg: cfg}
	n.Start()
	m.Nodes = append(m.Nodes, n)
	return n
}

// Endpoint returns application i as the consumer's registry has it.
func (m *Mesh) Endpoint(i int) registry.Endpoint {
	a := m.Apps[i]
	if m.OneHop {
		return registry.Endpoint{Addr: a.Addr, Weight: 1}
	}
	return registry.Endpoint{Addr: a.Host + ":15006", Weight: 1}
}

// Settled checks that no sidecar has requests in flight or message bytes in memory.
func (m *Mesh) Settled() {
	m.T.Helper()
	idle := func() bool {
		for _, n := range m.Nodes {
			if n.Proc.Pending() != 0 || n.Proc.Held() != 0 {
				return false
			}
		}
		return true
	}
	if !m.W.RunUntil(idle, time.Minute) {
		m.T.Error("requests or message bytes are left after a minute")
	}
	for _, n := range m.Nodes {
		if p := n.Proc.Pending(); p != 0 {
			m.T.Errorf("%s has %d requests pending", n.Host, p)
		}
		if b := n.Proc.Held(); b != 0 {
			m.T.Errorf("%s holds %d bytes of messages with nothing pending", n.Host, b)
		}
		for service := range n.Cfg.Services {
			if used, queued := n.Proc.Slots(service); used != 0 || queued != 0 {
				m.T.Errorf("%s: %d slots in use, %d queued, with nothing pending", n.Host, used, queued)
			}
		}
		for i, w := range n.Proc.Workers() {
			var report stats.WorkerReport
			n.Loops[i].Do(func() { report = w.Report(stats.Forecasts) })
			for _, s := range report.Services {
				if s.HedgesInFlight != 0 {
					m.T.Errorf("%s: %d hedges in flight, with nothing pending", n.Host, s.HedgesInFlight)
				}
				for _, e := range s.Endpoints {
					if e.Pending != 0 {
						m.T.Errorf("%s: %d attempts counted at %s, with nothing pending", n.Host, e.Pending, e.Addr)
					}
				}
			}
		}
	}
}

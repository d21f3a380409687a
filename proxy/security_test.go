package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestNoOpenProxy: whatever authority a client names, its requests go to endpoints of
// the service of a route, or nowhere.
func TestNoOpenProxy(t *testing.T) {
	const elsewhere = "203.0.113.9"
	for _, c := range []struct {
		request string
		served  int // by the application
	}{
		{"GET / HTTP/1.1\r\nHost: " + elsewhere + "\r\n\r\n", 1},
		{"GET http://" + elsewhere + "/ HTTP/1.1\r\nHost: compute\r\n\r\n", 1},
		{"CONNECT " + elsewhere + ":443 HTTP/1.1\r\nHost: " + elsewhere + ":443\r\n\r\n", 0},
	} {
		t.Run(c.request[:7], func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
			reached := 0
			for _, port := range []int{80, 443} {
				m.W.Net.Listen(fmt.Sprint(elsewhere, ":", port), m.W.Loop(fmt.Sprint(elsewhere, "-", port)), func() loop.Receiver {
					reached++
					return &proxytest.Peer{}
				})
			}
			p := &proxytest.Peer{Says: []byte(c.request)}
			m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
			m.RunUntil("a response", func() bool { return len(p.Heard) > 0 })
			m.W.Run(time.Second)
			if reached > 0 || m.Apps[0].Served != c.served {
				t.Errorf("%d connections to the address that the client named, %d requests at the application: %q", reached, m.Apps[0].Served, p.Heard)
			}
			if !p.Ended {
				m.Clients.Do(func() { p.Conn.Close() })
			}
			m.Settled()
		})
	}
}

// TestLinkReachesOneService: the service that a request on a link names is ignored: the
// request goes to the service of the listener.
func TestLinkReachesOneService(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2})
	n := m.Node("10.0.3.1", fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: open}]
services:
  open: {discover: static, endpoints: [%q], protocol: http}
  closed: {discover: static, endpoints: [%q], protocol: http}`, m.Apps[0].Addr, m.Apps[1].Addr))
	n.Listen(15006)
	n.Update("open", registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1})
	n.Update("closed", registry.Endpoint{Addr: m.Apps[1].Addr, Weight: 1})
	p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) {
		req := *proxytest.LinkRequest
		req.Service, req.Authority = []byte("closed"), []byte("closed")
		w.Request(1, &req, time.Minute, nil)
	})}
	m.Clients.Do(func() { m.Clients.Dial("10.0.3.1:15006", time.Second, p) })
	m.RunUntil("a request at an application", func() bool { return m.Apps[0].Served+m.Apps[1].Served > 0 })
	if m.Apps[1].Served > 0 {
		t.Error("a link reached another service than its listener's")
	}
	m.Clients.Do(func() { p.Conn.Close() })
	m.Settled()
}

// destinations is a loop that records the service of each dial.
type destinations struct {
	*proxytest.NullLoop
	services []string
}

func (d *destinations) Dial(_ string, _ time.Duration, r loop.Receiver) {
	service := "nobody's"
	if to, ok := r.(loop.Destined); ok {
		service = to.ServiceKey()
	}
	d.services = append(d.services, service)
}

// TestDialsNameTheirService: each dial names its service to the driver, and so its TLS
// settings, whatever protocol the registry names.
func TestDialsNameTheirService(t *testing.T) {
	for _, protocolName := range []string{"", "link", "http", "dubbo", "tcp", "unknown"} {
		t.Run(protocolName, func(t *testing.T) {
			cfg, err := config.Parse("test.yaml", []byte(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: link}}`), func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatal(err)
			}
			d := &destinations{NullLoop: proxytest.NewNullNet().Loop()}
			proc := proxy.NewProcess(cfg, 1)
			proc.SetWall(time.Now)
			w := proxy.NewWorker(proc, d, slog.New(slog.NewTextHandler(io.Discard, nil)), 1)
			proc.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{},
				[]registry.Endpoint{{Addr: "10.0.0.1:1", Weight: 1, Protocol: protocolName}}))
			d.Net.Pump()
			s := proc.Generation().Listener(cfg.Listeners[0].Name).Accept(w)
			c, _ := d.Net.Connect(d.NullLoop, s, nil, nil)
			s.OnOpen(c)
			c.Deliver([]byte("POST /com.acme.Demo/m HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"args\":[]}"))
			d.Net.Pump()
			if !slices.Equal(d.services, slices.Collect(maps.Keys(proc.Generation().Keys()))) {
				t.Errorf("dialled for %q: %q", d.services, c.Out)
			}
		})
	}
}

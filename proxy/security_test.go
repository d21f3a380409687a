package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// TestNoOpenProxy: whatever authority a client names, its requests go to the
// endpoints of the service that the routes say, or nowhere.
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
			m := newMesh(t, meshOptions{apps: 1, direct: true})
			reached := 0
			for _, port := range []int{80, 443} {
				m.w.Listen(fmt.Sprint(elsewhere, ":", port), m.w.Loop(fmt.Sprint(elsewhere, "-", port)), func() proxy.Stream {
					reached++
					return &peer{}
				})
			}
			p := &peer{says: []byte(c.request)}
			m.clients.Do(func() { m.clients.Dial(egress, time.Second, p) })
			m.until("an answer", func() bool { return len(p.heard) > 0 })
			m.w.Run(time.Second)
			if reached > 0 || m.apps[0].served != c.served {
				t.Errorf("%d connections to whom the client named, %d requests at the application: %q", reached, m.apps[0].served, p.heard)
			}
			if !p.ended {
				m.clients.Do(func() { p.conn.Close() })
			}
			m.settled()
		})
	}
}

// TestLinkReachesOneService: the service that a request on a link names is not
// looked at, it goes to the one of the listener.
func TestLinkReachesOneService(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2})
	n := m.node("10.0.3.1", fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: open}]
services:
  open: {discover: static, endpoints: [%q], protocol: http}
  closed: {discover: static, endpoints: [%q], protocol: http}`, m.apps[0].addr, m.apps[1].addr))
	n.listen(15006)
	n.update("open", registry.Endpoint{Addr: m.apps[0].addr, Weight: 1})
	n.update("closed", registry.Endpoint{Addr: m.apps[1].addr, Weight: 1})
	p := &peer{says: frames(func(w *link.Writer) {
		req := *get
		req.Service, req.Authority = []byte("closed"), []byte("closed")
		w.Request(1, &req, time.Minute, nil)
	})}
	m.clients.Do(func() { m.clients.Dial("10.0.3.1:15006", time.Second, p) })
	m.until("a request at an application", func() bool { return m.apps[0].served+m.apps[1].served > 0 })
	if m.apps[1].served > 0 {
		t.Error("a link reached a service that is not its listener's")
	}
	m.clients.Do(func() { p.conn.Close() })
	m.settled()
}

// destinations is a loop that keeps which service each dial was for.
type destinations struct {
	*nullLoop
	services []string
}

func (d *destinations) Dial(_ string, _ time.Duration, s proxy.Stream) {
	service := "nobody's"
	if to, ok := s.(proxy.Destined); ok {
		service = to.Service()
	}
	d.services = append(d.services, service)
}

// TestDialsNameTheirService: the driver learns of each connection which service
// it is for, and with it the TLS, whatever protocol the registry names.
func TestDialsNameTheirService(t *testing.T) {
	for _, protocolName := range []string{"", "link", "http", "dubbo", "tcp", "unknown"} {
		t.Run(protocolName, func(t *testing.T) {
			cfg, err := config.Parse("test.yaml", []byte(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: link}}`), func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatal(err)
			}
			d := &destinations{nullLoop: newNullNet().loop()}
			proc := proxy.NewProcess(cfg, 1)
			proc.SetWall(time.Now)
			w := proxy.NewWorker(proc, d, slog.New(slog.NewTextHandler(io.Discard, nil)), 1)
			proc.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{},
				[]registry.Endpoint{{Addr: "10.0.0.1:1", Weight: 1, Protocol: protocolName}}))
			d.net.pump()
			s := proc.Generation().Entrance(cfg.Listeners[0].Name).Accept(w)
			c, _ := d.net.connect(d.nullLoop, s, nil, nil)
			s.OnOpen(c)
			c.deliver([]byte("POST /com.acme.Demo/m HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"args\":[]}"))
			d.net.pump()
			if !slices.Equal(d.services, []string{"compute"}) {
				t.Errorf("dialled for %q: %q", d.services, c.out)
			}
		})
	}
}

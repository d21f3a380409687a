package bench

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

const (
	testListen, testUpstream, testAdmin = "127.0.0.1:20001", "127.0.0.1:20002", "127.0.0.1:20003"
)

// testPlace is a place in a temporary folder.
func testPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	p := place{Dir: dir, Listen: testListen, Upstreams: []string{testUpstream}, Admin: testAdmin, shared: &shared{dir: dir}}
	t.Cleanup(p.shared.close)
	return p
}

func TestSidecarConfigurations(t *testing.T) {
	for _, row := range Rows() {
		for i, h := range row.chain {
			if !h.sidecar {
				continue
			}
			args, err := h.args(testPlace(t))
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.Load(args[len(args)-1])
			if err != nil {
				t.Errorf("%s, sidecar %d: %v", row.Name, i, err)
				continue
			}
			l, s := c.Listeners[0], c.Services["out"]
			if c.Loops != 1 || l.Address != testListen || s.Endpoints[0].Address != testUpstream || c.Admin.Address != testAdmin {
				t.Errorf("%s, sidecar %d: %+v", row.Name, i, c)
			}
			consumer, provider := i == 0 && len(row.chain) == 2, i == 1
			if (s.Protocol == config.ProtocolLink) != consumer || (l.Protocol == config.ProtocolLink) != provider {
				t.Errorf("%s, sidecar %d: %s to %s", row.Name, i, l.Protocol, s.Protocol)
			}
			tls := strings.HasSuffix(row.Name, "-tls")
			if (s.TLS.Cert != "") != (tls && consumer) || (l.TLS.Cert != "") != (tls && provider) {
				t.Errorf("%s, sidecar %d: certificates %q and %q", row.Name, i, l.TLS.Cert, s.TLS.Cert)
			}
			observed := strings.HasSuffix(row.Name, "-observed")
			if (c.AccessLog.Path != "") != observed || (c.Tracing.Endpoint != "") != observed {
				t.Errorf("%s, sidecar %d: access log %+v, tracing %+v", row.Name, i, c.AccessLog, c.Tracing)
			}
		}
	}
}

// TestPeerConfigurations checks that peers log nothing and keep connections alive.
func TestPeerConfigurations(t *testing.T) {
	for _, c := range []struct {
		hop      hop
		has, not []string
	}{
		{haproxy, []string{"bind " + testListen, "server s0 " + testUpstream, "nbthread 1", "http-reuse always"}, []string{"log "}},
		{nginx, []string{"listen " + testListen, "server " + testUpstream, "worker_processes 1;", "access_log off;", "keepalive 1024;"}, nil},
		{envoy, []string{"port_value: 20001", "port_value: 20002", "codec_type: HTTP1"}, []string{"access_log"}},
	} {
		args, err := c.hop.args(testPlace(t))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(args[len(args)-1])
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.has {
			if !strings.Contains(string(b), s) {
				t.Errorf("%s lacks %q:\n%s", c.hop.program, s, b)
			}
		}
		for _, s := range append(c.not, "<no value>", "{{") {
			if strings.Contains(string(b), s) {
				t.Errorf("%s has %q:\n%s", c.hop.program, s, b)
			}
		}
	}
	if args, err := relay.args(testPlace(t)); err != nil || strings.Join(args, " ") != "20001 20002" {
		t.Errorf("relay %q, %v", args, err)
	}
}

func TestObserver(t *testing.T) {
	scraped := make(chan struct{}, 100)
	sidecar := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			scraped <- struct{}{}
		}
	}))
	defer sidecar.Close()
	s := &shared{}
	defer s.close()
	if err := s.check(); err != nil {
		t.Errorf("without an observer: %v", err)
	}
	if _, err := s.observe(place{Admin: sidecar.Listener.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	<-scraped
	<-scraped // the first scrape has been counted
	if err := s.check(); err == nil {
		t.Error("without a span: no error")
	}
	if _, err := http.Post("http://"+s.observer.addr+"/v1/traces", "application/x-protobuf", strings.NewReader("spans")); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

package bench

import (
	"os"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
)

const (
	testListen, testUpstream, testAdmin = "127.0.0.1:20001", "127.0.0.1:20002", "127.0.0.1:20003"
)

// testPlace is the place of a hop in a temporary folder.
func testPlace(t *testing.T, h hop) place {
	t.Helper()
	dir := t.TempDir()
	if err := writeCertificates(dir, false); err != nil {
		t.Fatal(err)
	}
	return place{
		hop: h, Dir: dir, Shared: dir, Listen: testListen, Upstreams: []string{testUpstream},
		Admin: testAdmin, Spans: "127.0.0.1:20004",
	}
}

// configFile writes the configuration of a program, and returns its file.
func configFile(t *testing.T, p place) string {
	t.Helper()
	args, err := p.arguments()
	if err != nil {
		t.Fatal(err)
	}
	return args[len(args)-1]
}

func TestSidecarConfigurations(t *testing.T) {
	for _, row := range Rows() {
		for i, h := range row.chain {
			if h.Sidecar == nil {
				continue
			}
			file := configFile(t, testPlace(t, h))
			c, err := config.Load(file)
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

// TestHTTPSConfigurations checks that each side of each row speaks HTTPS where its name says so.
func TestHTTPSConfigurations(t *testing.T) {
	for _, row := range HTTPSRows() {
		file := configFile(t, testPlace(t, row.chain[0]))
		b := must.ReadFile(t, file)
		in, out := "bind "+testListen+" ssl ", " ssl verify required "
		if row.sidecars() {
			c, err := config.Load(file)
			if err != nil {
				t.Errorf("%s: %v", row.Name, err)
				continue
			}
			in, out = "tls: {cert:", "tls: {ca:"
			if got := c.Listeners[0].TLS.Enabled(); got != strings.HasSuffix(row.Name, "-in") {
				t.Errorf("%s: TLS of the listener is %t", row.Name, got)
			}
		}
		if strings.Contains(string(b), in) != strings.HasSuffix(row.Name, "-in") || strings.Contains(string(b), out) != strings.HasSuffix(row.Name, "-out") {
			t.Errorf("%s:\n%s", row.Name, b)
		}
	}
}

// TestPeerConfigurations checks that peers log nothing, keep connections alive, and have room
// for those at rest.
func TestPeerConfigurations(t *testing.T) {
	for _, c := range []struct {
		hop      hop
		has, not []string
	}{
		{haproxy, []string{"bind " + testListen, "server s0 " + testUpstream, "nbthread 1", "http-reuse always"}, []string{"log "}},
		{nginx, []string{"listen " + testListen, "server " + testUpstream, "worker_processes 1;", "access_log off;", "keepalive 1024;"}, nil},
		{envoy, []string{"port_value: 20001", "port_value: 20002", "codec_type: HTTP1"}, []string{"access_log"}},
	} {
		file := configFile(t, testPlace(t, c.hop))
		b := must.ReadFile(t, file)
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
	for _, c := range []struct {
		hop  hop
		want string
	}{
		{haproxy, "maxconn 16584"}, {nginx, "worker_connections 16584"}, {sidecar{In: "http", Out: "http"}.hop(), "connections: 16584"},
	} {
		p := testPlace(t, c.hop)
		p.Idle = 100
		file := configFile(t, p)
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), c.want) {
			t.Errorf("%s lacks %q: %v\n%s", c.hop.program, c.want, err, b)
		}
	}
	if args, err := testPlace(t, floor[1]).arguments(); err != nil || strings.Join(args, " ") != "provider 20001 20002" {
		t.Errorf("floor %q, %v", args, err)
	}
	if args, err := testPlace(t, relay).arguments(); err != nil || strings.Join(args, " ") != "20001 20002" {
		t.Errorf("relay %q, %v", args, err)
	}
}

// TestMemoryConfigurations checks that many addresses of one provider are its links.
func TestMemoryConfigurations(t *testing.T) {
	consumer := sidecar{In: "http", Out: "link", AllLoops: true, Aliases: 3}
	provider := sidecar{In: "link", Out: "http", AllLoops: true, Exposed: true}
	for _, s := range []sidecar{consumer, provider} {
		file := configFile(t, testPlace(t, s.hop()))
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		endpoints := c.Services["out"].Endpoints
		if s.Exposed && (c.Listeners[0].Address != "0.0.0.0:20001" || endpoints[0].Address != testUpstream) {
			t.Errorf("the provider's: %+v, %+v", c.Listeners[0], endpoints)
		}
		if !s.Exposed && (c.Listeners[0].Address != testListen || len(endpoints) != 3 || endpoints[2].Address != "127.0.1.2:20002") {
			t.Errorf("the consumer's: %+v, %+v", c.Listeners[0], endpoints)
		}
	}
}

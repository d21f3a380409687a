package strictness

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/must"
)

// instancesPerProxy is how many processes of a product share the cases. Nearly all
// time is spent waiting.
const instancesPerProxy = 6

// product is a proxy that the corpus is sent to, and how it is run. Its limits are
// those of the corpus where there is a setting for them.
type product struct {
	name    string
	binary  string
	version string // the argument that prints it
	args    func(config string) []string
	config  func(listen, replica, dir string) string
}

var products = []product{
	{name: "Remora"}, // instance starts it
	{"nginx", "nginx", "-v", func(c string) []string { return []string{"-e", "stderr", "-c", c} }, nginxConfig},
	{"HAProxy", "haproxy", "-v", func(c string) []string { return []string{"-db", "-f", c} }, haproxyConfig},
	{"Envoy", cmp.Or(os.Getenv("ENVOY"), "envoy"), "--version", func(c string) []string {
		return []string{"--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c", c}
	}, envoyConfig},
}

// runningProxy is a running product.
type runningProxy struct {
	name      string
	version   string
	instances []*instance
}

// instance is one process, in front of a replica of its own.
type instance struct {
	addr    string
	replica *corpus.Replica
}

var versionNumber = regexp.MustCompile(`\b\d+\.\d+\.\d+`)

func (p *product) start(t *testing.T) *runningProxy {
	started := &runningProxy{name: p.name}
	started.version = p.installed(t)
	for range instancesPerProxy {
		started.instances = append(started.instances, p.instance(t))
	}
	for _, i := range started.instances {
		if err := i.ready(); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
	return started
}

// installed is the version of the program, "" of Remora.
func (p *product) installed(t *testing.T) string {
	t.Helper()
	if p.binary == "" {
		return ""
	}
	out, err := exec.Command(p.binary, p.version).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return versionNumber.FindString(string(out))
}

// instance starts one process, which ends with the test.
func (p *product) instance(t *testing.T) *instance {
	replica, err := corpus.StartReplica(corpus.NumberedReply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replica.Close)
	addr := harness.FreeAddrs(t, 1)[0]
	if p.binary == "" {
		harness.Start(t, strictLimits+fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: http, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, addr, replica.Addr()))
		return &instance{addr, replica}
	}
	dir := t.TempDir()
	p.launch(t, dir, p.config(addr, replica.Addr(), dir))
	return &instance{addr, replica}
}

// launch runs the program with a configuration until the test ends.
func (p *product) launch(t *testing.T, dir, text string) {
	t.Helper()
	config := filepath.Join(dir, "config.yaml") // Envoy takes the format from the name
	must.WriteFile(t, config, text)
	harness.StartProgram(t, exec.Command(p.binary, p.args(config)...))
}

// ready waits until a request passes. Whatever preceded it is over then.
func (i *instance) ready() (err error) {
	for end := time.Now().Add(harness.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = i.pass(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("does not pass requests: %w", err)
}

// pass sends a request and waits for its response. The record before it is dropped: it
// may hold late bytes of another case.
func (i *instance) pass() error {
	i.replica.Take()
	nc, err := net.Dial("tcp", i.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Write([]byte("GET /pass HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := nc.Read(b)
	if err == nil && !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200 ") {
		err = fmt.Errorf("%q", b[:n])
	}
	return err
}

// nginxWith returns a configuration of nginx that writes to dir only, with more directives for http.
func nginxWith(dir, directives string) string {
	return fmt.Sprintf(`
worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
%[2]s
}
`, dir, directives)
}

func nginxConfig(listen, replica, dir string) string {
	return nginxWith(dir, fmt.Sprintf(`
	client_header_buffer_size 2k;
	large_client_header_buffers 4 2k;
	client_max_body_size 4k;
	upstream replica { server %[2]s; keepalive 8; }
	server {
		listen %[1]s;
		location / {
			proxy_pass http://replica;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $http_host;
		}
	}`, listen, replica))
}

func haproxyConfig(listen, replica, _ string) string {
	return fmt.Sprintf(`
global
    nbthread 1
    tune.http.maxhdr %d
defaults
    mode http
    timeout connect 5s
    timeout client 1m
    timeout server 1m
frontend in
    bind %s
    default_backend out
backend out
    server replica %s
`, corpus.HeadersLimit, listen, replica)
}

func envoyConfig(listen, replica, _ string) string {
	address := func(addr string) string {
		host, port, _ := net.SplitHostPort(addr)
		return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port)
	}
	return fmt.Sprintf(`
static_resources:
  listeners:
  - address: %s
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: HTTP1
          max_request_headers_kb: 2
          common_http_protocol_options: {max_headers_count: %d}
          http_protocol_options: {accept_http_10: true}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: ""}, route: {cluster: out}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: out
    connect_timeout: 5s
    load_assignment:
      cluster_name: out
      endpoints: [{lb_endpoints: [{endpoint: {address: %s}}]}]
`, address(listen), corpus.HeadersLimit, address(replica))
}

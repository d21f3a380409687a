package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/freeport"
)

// parallel is how many processes of a product share the cases: most of the time is
// spent waiting for what does not come.
const parallel = 6

// proxy is a product that runs.
type proxy struct {
	name      string
	version   string
	instances []*instance
}

// instance is one of its processes, in front of a replica of its own.
type instance struct {
	addr    string
	replica *corpus.Replica
	cmd     *exec.Cmd
}

// product says how a proxy is run. The limits are set to those of the corpus where
// there is a setting for them.
type product struct {
	name    string
	version []string // arguments that print it
	run     func(config string) []string
	file    string
	config  func(listen, replica, dir string) string
}

// versionNumber is what a product's version is called in the document.
var versionNumber = regexp.MustCompile(`\b\d+\.\d+\.\d+`)

var products = []product{
	{"Remora", []string{"version"}, func(c string) []string { return []string{"run", "-c", c} }, "remora.yaml", remoraConfig},
	{"nginx", []string{"-v"}, func(c string) []string { return []string{"-e", "stderr", "-c", c} }, "nginx.conf", nginxConfig},
	{"HAProxy", []string{"-v"}, func(c string) []string { return []string{"-db", "-f", c} }, "haproxy.cfg", haproxyConfig},
	{"Envoy", []string{"--version"}, func(c string) []string {
		return []string{"--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c", c}
	}, "envoy.yaml", envoyConfig},
}

func remoraConfig(listen, replica, _ string) string {
	return fmt.Sprintf(`
loops: 1
log: {level: warn}
admin: {address: ""}
limits: {header: %d, headers: %d, message: %d}
listeners: [{name: in, address: %q, protocol: http, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: http}}
`, corpus.HeaderLimit, corpus.HeadersLimit, corpus.MessageLimit, listen, replica)
}

func nginxConfig(listen, replica, dir string) string {
	return fmt.Sprintf(`
worker_processes 1;
daemon off;
pid %[3]s/nginx.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[3]s/body;
	proxy_temp_path %[3]s/proxy;
	fastcgi_temp_path %[3]s/fastcgi;
	uwsgi_temp_path %[3]s/uwsgi;
	scgi_temp_path %[3]s/scgi;
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
	}
}
`, listen, replica, dir)
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

// start runs the product. What of it runs is returned with an error, too.
func (p *product) start(binary, dir string) (*proxy, error) {
	told, err := exec.Command(binary, p.version...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	started := &proxy{name: p.name, version: cmp.Or(versionNumber.FindString(string(told)), "unreleased")}
	for n := range parallel {
		i, err := p.instance(binary, filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ToLower(p.name), n)))
		if err != nil {
			return started, fmt.Errorf("%s: %w", p.name, err)
		}
		started.instances = append(started.instances, i)
	}
	for _, i := range started.instances {
		if err := i.ready(); err != nil {
			return started, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return started, nil
}

func (p *proxy) stop() {
	for _, i := range p.instances {
		i.stop()
	}
}

// instance starts one process.
func (p *product) instance(binary, dir string) (*instance, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addrs, err := freeport.Loopback(1)
	if err != nil {
		return nil, err
	}
	replica, err := corpus.StartReplica(corpus.NumberedReply)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, p.file)
	if err := os.WriteFile(config, []byte(p.config(addrs[0], replica.Addr(), dir)), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, p.run(config)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &instance{addrs[0], replica, cmd}, nil
}

// ready waits until a request passes. What came before it is over then.
func (i *instance) ready() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = i.pass(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("does not pass requests: %w", err)
}

// pass sends a request and waits for its answer. What came late of another, and may
// be malformed, is not in its record.
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

func (i *instance) stop() {
	_ = i.cmd.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { _ = i.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = i.cmd.Process.Kill()
		<-done
	}
	i.replica.Close()
}

package strictness

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// front is a proxy with one listener of plain text and one with TLS. It has three hosts:
//
//	name.test   an application
//	127.0.0.1   an application that logs in connections
//	six.test    an application at ::1 only, by the name localhost
type front struct {
	name, plain, secure string
	app                 *wellFormedApp
	login               *loginApp
	trusted             *testcerts.CA
	sixth               string // the port at ::1
	dir                 string
	files               testcerts.Dir // of name.test
}

// fronts are the configurations of the products, by their names.
var fronts = map[string]func(f *front) string{
	"Remora": remoraFront, "nginx": nginxFront, "HAProxy": haproxyFront, "Envoy": envoyFront,
}

func (p *product) startFront(t *testing.T) *front {
	t.Helper()
	ca := testcerts.New(t)
	addrs := harness.FreeAddrs(t, 2)
	f := &front{
		name: p.name, plain: addrs[0], secure: addrs[1],
		app: startWellFormedApp(t), login: startLoginApp(t, false),
		trusted: ca, dir: t.TempDir(), files: harness.CertFiles(t, ca, "name.test"),
	}
	six := serve(t, "[::1]:0", http.HandlerFunc(f.app.respond))
	_, f.sixth, _ = net.SplitHostPort(six)
	text := fronts[p.name](f)
	if p.binary == "" {
		harness.Start(t, text).Ready()
		return f
	}
	p.launch(t, f.dir, text)
	for _, addr := range addrs {
		eventually.Nil(t, p.name+" to listen", func() error {
			nc, err := net.Dial("tcp", addr)
			if err == nil {
				nc.Close()
			}
			return err
		})
	}
	return f
}

func remoraFront(f *front) string {
	service := func(endpoint string) string {
		return fmt.Sprintf("{discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}", endpoint)
	}
	return fmt.Sprintf(`
loops: 1
listeners:
  - {name: plain, address: %q, protocol: http}
  - {name: secure, address: %q, protocol: http, tls: {cert: %q, key: %q}}
routes:
  - {match: {host: name.test}, service: app}
  - {match: {host: 127.0.0.1}, service: login}
  - {match: {host: six.test}, service: six}
services:
  app: %s
  login: %s
  six: %s`, f.plain, f.secure, f.files.Cert, f.files.Key, service(f.app.addr), service(f.login.addr), service("localhost:"+f.sixth))
}

func nginxFront(f *front) string {
	var servers strings.Builder
	for _, s := range [][2]string{{"name.test", f.app.addr}, {"127.0.0.1", f.login.addr}, {"six.test", "localhost:" + f.sixth}} {
		fmt.Fprintf(&servers, `
	upstream %[1]s { server %[2]s; keepalive 8; }
	server {
		listen %[3]s;
		listen %[4]s ssl;
		server_name %[1]s;
		location / {
			proxy_pass http://%[1]s;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
		}
	}
`, s[0], s[1], f.plain, f.secure)
	}
	return nginxWith(f.dir, fmt.Sprintf(`
	http2 on;
	ssl_certificate %[1]s;
	ssl_certificate_key %[2]s;
	map $http_upgrade $connection_upgrade {
		default upgrade;
		'' '';
	}
	server {
		listen %[3]s default_server;
		listen %[4]s ssl default_server;
		return 404;
	}
	%[5]s`, f.files.Cert, f.files.Key, f.plain, f.secure, servers.String()))
}

func haproxyFront(f *front) string {
	both := filepath.Join(f.dir, "both.pem")
	cert, _ := os.ReadFile(f.files.Cert)
	key, _ := os.ReadFile(f.files.Key)
	_ = os.WriteFile(both, append(cert, key...), 0o600)
	return fmt.Sprintf(`
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 1m
    timeout server 1m
frontend in
    bind %s
    bind %s ssl crt %s alpn h2,http/1.1
    use_backend app if { req.hdr(host) -i name.test }
    use_backend login if { req.hdr(host),field(1,:) 127.0.0.1 }
    use_backend six if { req.hdr(host) -i six.test }
backend app
    server app %s
backend login
    server login %s
backend six
    server six localhost:%s
`, f.plain, f.secure, both, f.app.addr, f.login.addr, f.sixth)
}

func envoyFront(f *front) string {
	address := func(host, port string) string {
		return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port)
	}
	at := func(addr string) string {
		host, port, _ := net.SplitHostPort(addr)
		return address(host, port)
	}
	listener := func(addr, transport string) string {
		return fmt.Sprintf(`
  - address: %s
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          upgrade_configs: [{upgrade_type: websocket}, {upgrade_type: tcp}]
          route_config:
            virtual_hosts:
            - {name: app, domains: [name.test], routes: [{match: {prefix: ""}, route: {cluster: app}}]}
            - {name: login, domains: ["127.0.0.1", %q], routes: [{match: {prefix: ""}, route: {cluster: login}}]}
            - {name: six, domains: [six.test], routes: [{match: {prefix: ""}, route: {cluster: six}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}%s
`, at(addr), addr, transport)
	}
	cluster := func(name, kind, address string) string {
		return fmt.Sprintf(`
  - {name: %[1]s, connect_timeout: 5s, type: %[2]s, load_assignment: {cluster_name: %[1]s, endpoints: [{lb_endpoints: [{endpoint: {address: %[3]s}}]}]}}`,
			name, kind, address)
	}
	tls := fmt.Sprintf(`
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates: [{certificate_chain: {filename: %q}, private_key: {filename: %q}}]`, f.files.Cert, f.files.Key)
	return "static_resources:\n  listeners:" + listener(f.plain, "") + listener(f.secure, tls) +
		"  clusters:" + cluster("app", "STATIC", at(f.app.addr)) + cluster("login", "STATIC", at(f.login.addr)) +
		cluster("six", "STRICT_DNS", address("localhost", f.sixth)) + "\n"
}

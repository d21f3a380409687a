package names

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// echoApp returns a server that says what it received, in plain text or over TLS.
func echoApp(t *testing.T, name string, secure bool) *httptest.Server {
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s: %s %s %s %d", name, r.Method, r.Host, r.RequestURI, n)
	}))
	if secure {
		app.StartTLS()
	} else {
		app.Start()
	}
	t.Cleanup(app.Close)
	return app
}

// accessFields reads the lines of an access log, once there are n, as their fields. It sorts the lines: their order is
// that in which loops and streams have ended their work, not that of the requests.
func accessFields(t *testing.T, file string, n int) (lines []string) {
	t.Helper()
	harness.AwaitLines(t, file, n)
	text := must.ReadFile(t, file)
	for line := range strings.Lines(string(text)) {
		var l struct {
			Method, Authority, Path, Service, Stream, Error, Endpoint string
			Status                                                    int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprint(
			l.Method, " ", l.Authority, " ", l.Path, " ", l.Service, " ", l.Stream, " ", l.Status, " ", l.Error, " ", l.Endpoint)), " "))
	}
	slices.Sort(lines)
	return lines
}

// TestConnectServesRequests: requests within a CONNECT to the host of a route are routed, each by
// its own host, counted and logged, and the CONNECT has no line. A tunnel to a host without a
// route is refused.
func TestConnectServesRequests(t *testing.T) {
	a, b := echoApp(t, "a", false), echoApp(t, "b", false)
	egress, log := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access")
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: a}, service: a}, {match: {host: b}, service: b}]
services:
  a: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  b: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
access_log: {path: %q}`, egress, a.Listener.Addr(), b.Listener.Addr(), log))
	p.Ready()
	s, status := harness.ConnectTo(t, egress, "a:80", "GET /1 HTTP/1.1\nHost: a:80\n\n")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	resp := s.Response(200, "a: GET a:80 /1 0")
	if id := resp.Header.Get("X-Request-Id"); len(id) != 32 || resp.Header.Get("Via") != "" {
		t.Errorf("headers %v", resp.Header)
	}
	s.Say("POST /2 HTTP/1.1\nHost: b\nContent-Length: 5\n\n", []byte("hello")...)
	s.Response(200, "b: POST b /2 5")
	s.Say("GET /3 HTTP/1.1\nHost: c\n\n")
	s.Response(404, harness.AnyBody)
	s.Say("GET /4 HTTP/1.0\n\n")
	s.Response(200, "a: GET a:80 /4 0")
	s.Ends()
	if _, status := harness.ConnectTo(t, egress, "c:80", ""); status != 404 {
		t.Errorf("CONNECT to a host without a route: %d", status)
	}
	want := []string{
		"CONNECT c:80 404 no-route", "GET a:80 /1 a 200 " + a.Listener.Addr().String(), "GET a:80 /4 a 200 " + a.Listener.Addr().String(),
		"GET c /3 404 no-route", "POST b /2 b 200 " + b.Listener.Addr().String(),
	}
	if got := accessFields(t, log, len(want)); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	p.Counts(`remora_requests_total{outcome="2xx",service="a"}`, 2)
}

// TestConnectCarriesTLS: TLS in a tunnel passes to an endpoint if a route names CONNECT. If none
// does, the client gets an alert, and the access log has a line.
func TestConnectCarriesTLS(t *testing.T) {
	app := echoApp(t, "tls", true)
	egress, log := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access")
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {host: named, method: [CONNECT, GET]}, service: app}
  - {match: {host: unnamed}, service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
access_log: {path: %q}`, egress, app.Listener.Addr(), log)).Ready()
	through, err := url.Parse("http://" + egress)
	if err != nil {
		t.Fatal(err)
	}
	trust := app.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.ServerName = "example.com"
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(through), TLSClientConfig: trust}}
	defer client.CloseIdleConnections()
	_, body := must.Get(t, client, "https://named/x")
	if body != "tls: GET named /x 0" {
		t.Errorf("%q", body)
	}
	if _, err := client.Get("https://unnamed/x"); err == nil || !strings.HasSuffix(err.Error(), "remote error: tls: access denied") {
		t.Errorf("without a route for CONNECT: %v", err)
	}
	client.CloseIdleConnections()
	want := []string{"CONNECT named:443 app connect 200 " + app.Listener.Addr().String(), "CONNECT unnamed:443 404 no-route"}
	if got := accessFields(t, log, len(want)); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// TestConnectToServerThatSpeaksFirst: a client that waits for its server reaches it after
// timeouts.detect, if a route names CONNECT.
func TestConnectToServerThatSpeaksFirst(t *testing.T) {
	mail := harness.ServeTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 ready\r\n")
		_, _ = io.Copy(c, c)
	})
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: mail, method: [CONNECT, GET]}, service: mail}]
services: {mail: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
timeouts: {detect: 10ms}`, egress, mail)).Ready()
	s, status := harness.ConnectTo(t, egress, "mail:25", "")
	line, err := s.In.ReadString('\n')
	if status != 200 || line != "220 ready\r\n" || err != nil {
		t.Fatalf("%d %q %v", status, line, err)
	}
	s.Say("HELO x\n")
	if line, err = s.In.ReadString('\n'); line != "HELO x\r\n" {
		t.Errorf("%q %v", line, err)
	}
}

// directConfig is the configuration of a listener whose requests without a route go on.
func directConfig(egress, log, direct string) string {
	return fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, unrouted: direct%s}]
routes: [{match: {host: compute}, service: compute}]
services: {compute: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}
limits: {message: 64KiB}
access_log: {path: %q}`, egress, direct, log)
}

// TestUnroutedDirect: requests and tunnels to hosts without a route go to these hosts, if the
// list has their address: bodies of any length, paths as they came, TLS, and both kinds of names.
func TestUnroutedDirect(t *testing.T) {
	plain, secure := echoApp(t, "plain", false), echoApp(t, "secure", true)
	egress, log := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access")
	p := harness.Start(t, directConfig(egress, log, `, direct: {allow: [127.0.0.0/8, "[::1]:1"]}`))
	p.Ready()
	through, err := url.Parse("http://" + egress)
	if err != nil {
		t.Fatal(err)
	}
	// By a function, since ProxyFromEnvironment leaves loopback out.
	transport := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return through, nil }}
	transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(plain.Listener.Addr().String())
	for _, c := range []struct{ method, url, body, want string }{
		{"GET", plain.URL + "/a%2Fb//c?d=e", "", "plain: GET " + plain.Listener.Addr().String() + " /a%2Fb//c?d=e 0"},
		{"POST", "http://localhost:" + port + "/", "body", "plain: POST localhost:" + port + " / 4"},
		{"PUT", plain.URL + "/", strings.Repeat("x", 1<<20), "plain: PUT " + plain.Listener.Addr().String() + " / 1048576"},
		{"GET", secure.URL + "/", "", "secure: GET " + secure.Listener.Addr().String() + " / 0"},
	} {
		r := must.Request(t, c.method, c.url, strings.NewReader(c.body))
		resp, body := must.Do(t, client, r)
		if body != c.want {
			t.Errorf("%s %s: %s %q, want %q", c.method, c.url, resp.Status, body, c.want)
		}
	}
	client.CloseIdleConnections()
	want := "GET " + plain.Listener.Addr().String() + " /a%2Fb//c?d=e body 200 " + plain.Listener.Addr().String()
	if got := accessFields(t, log, 4); !slices.Contains(got, want) {
		t.Errorf("lines %q, want %q among them", got, want)
	}
	// The route still counts, and a dead host has an error of its own.
	for target, want := range map[string]string{
		"http://compute/": "502 upstream-connect",
		"http://" + harness.FreeAddrs(t, 1)[0] + "/": "502 upstream-connect",
		"http://no-such-host.invalid/":               "502 unresolved",
		"http://[::1]:2/":                            "403 direct-refused",
		"http://169.254.169.254/latest/meta-data/":   "403 direct-refused",
	} {
		resp, _ := must.Get(t, client, target)
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Remora-Error")); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// TestDirectRefuses: without a list, and with one of names, no special address is reached: by
// address, in every spelling, by a name that leads to it, or by an address of this host. The
// check follows name resolution.
func TestDirectRefuses(t *testing.T) {
	reached := make(chan string, 1)
	_, port, _ := net.SplitHostPort(harness.ServeTCP(t, func(c net.Conn) {
		select {
		case reached <- c.LocalAddr().String():
		default:
		}
	}))
	hosts := []string{
		"127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "0.0.0.0", "[::]", "localhost", "LOCALHOST",
		"localhost.", "169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]",
		"[2001:0:a9fe:a9fe::1]", "[::ffff:0:127.0.0.1]", "[64:ff9b:1:7f00:0:100::]", "[2001:db8::5efe:127.0.0.1]",
		"224.0.0.1", "255.255.255.255", "[ff02::1]", "100.100.100.200", "168.63.129.16",
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		hosts = append(hosts, strings.Trim(net.JoinHostPort(ip.String(), ""), ":"))
	}
	for name, direct := range map[string]string{
		"no list": "", "all names": `, direct: {allow: ["*"]}`, "all addresses": `, direct: {allow: [0.0.0.0/0, "::/0"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			egress, log := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access")
			p := harness.Start(t, directConfig(egress, log, direct))
			p.Ready()
			for _, host := range hosts {
				at := host + ":" + port
				if ip := net.ParseIP(strings.Trim(host, "[]")); ip == nil && !strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
					t.Fatalf("%s is no host", host)
				}
				if _, status := harness.ConnectTo(t, egress, at, ""); status != 403 {
					t.Errorf("CONNECT %s: %d", at, status)
				}
				s := harness.DialPlain(t, egress)
				s.Say("GET http://" + at + "/ HTTP/1.1\nHost: x\n\n")
				if code := s.Response(403, harness.AnyBody).Header.Get("X-Remora-Error"); code != "direct-refused" {
					t.Errorf("%s: %s", at, code)
				}
			}
			eventually.Nil(t, "the refusals to be counted", func() error {
				if n := p.Metric(`remora_errors_total{code="direct-refused"}`); n != 2*len(hosts) {
					return fmt.Errorf("%d counted, want %d", n, 2*len(hosts))
				}
				return nil
			})
			const named = " 403 direct-refused 169.254.169.254:"
			if lines := strings.Join(accessFields(t, log, 2*len(hosts)), "\n"); !strings.Contains(lines, named+port) {
				t.Errorf("the access log does not name the address:\n%s", lines)
			}
		})
	}
	select {
	case at := <-reached:
		t.Errorf("%s was reached", at)
	default:
	}
}

// TestDirectNumbers: spellings of addresses that only some resolvers take for addresses reach nothing special, with the
// resolver of Go and that of the system.
func TestDirectNumbers(t *testing.T) {
	var reached atomic.Int32
	_, port, _ := net.SplitHostPort(harness.ServeTCP(t, func(net.Conn) { reached.Add(1) }))
	for _, resolver := range []string{"go", "cgo"} {
		egress := harness.FreeAddrs(t, 1)[0]
		p := harness.NewProcess(t, directConfig(egress, filepath.Join(t.TempDir(), "access"), ""))
		cmd := p.Command()
		cmd.Env = append(os.Environ(), "GODEBUG=netdns="+resolver)
		p.Launch(cmd).Ready()
		for _, host := range []string{
			"127.1", "127.0.1", "0x7f000001", "0x7f.1", "0x7f.0.0.0x1", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.01", "0", "0x0",
		} {
			if _, status := harness.ConnectTo(t, egress, host+":"+port, ""); status != 403 && status != 502 && status != 400 {
				t.Errorf("%s: CONNECT %s: %d", resolver, host, status)
			}
			s := harness.DialPlain(t, egress)
			s.Say("GET http://" + host + ":" + port + "/ HTTP/1.1\nHost: x\n\n")
			resp, err := http.ReadResponse(s.In, nil)
			if err != nil || resp.StatusCode != 403 && resp.StatusCode != 502 && resp.StatusCode != 400 {
				t.Errorf("%s: GET of %s: %v, %v", resolver, host, resp, err)
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d connections reached this host", n)
	}
}

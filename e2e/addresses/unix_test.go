package addresses

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// unixClient returns a client of the Unix socket at name.
func unixClient(t *testing.T, name string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", name)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: harness.Patience}
}

// unixApp serves what the client at the other end says at a Unix socket.
func unixApp(t *testing.T, name string) {
	t.Helper()
	ln := must.ListenOn(t, "unix", name)
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s for %s", r.URL.Path, b, r.Header.Get("X-Forwarded-For"))
	}))
	app.Listener.Close()
	app.Listener = ln
	app.Start()
	t.Cleanup(app.Close)
}

// wantAnswer posts to path and compares the response.
func wantAnswer(t *testing.T, c *http.Client, path, body, want string) {
	t.Helper()
	resp, err := c.Post("http://app"+path, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != want || resp.StatusCode != http.StatusOK || err != nil {
		t.Errorf("%s: %d %.100q, %v; want %.100q", path, resp.StatusCode, got, err, want)
	}
}

// logged waits until an access log has the text.
func logged(t *testing.T, file, want string) {
	t.Helper()
	eventually.Nil(t, "a line of the access log", func() error {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("%.300q", text)
		}
		return err
	})
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// TestUnixSockets: requests of any length pass from Unix sockets to Unix sockets, through a link
// over one, too. Health checks and the admin API use them. Files have their mode, survive hot
// restarts, and are gone at the end.
func TestUnixSockets(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := harness.SocketDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{in("app"), "@" + in("app")} {
		unixApp(t, name)
	}
	if stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: in("a"), Net: "unix"}); err != nil {
		t.Fatal(err)
	} else {
		stale.SetUnlinkOnClose(false)
		stale.Close()
	}
	p := harness.Start(t, strings.ReplaceAll(`
loops: 2
limits: {message: 64KiB}
access_log: {path: DIR/log}
listeners:
  - {name: a, address: "unix:DIR/a", mode: "0606", protocol: http, service: file}
  - {name: b, address: "unix:@DIR/b", protocol: http, service: abstract}
  - {name: c, address: "unix:DIR/c", protocol: http, service: linked}
  - {name: link, address: "unix:DIR/link", protocol: link, service: file}
services:
  file: {discover: static, protocol: http, endpoints: ["unix:DIR/app"], connect_timeout: 15s, check: {http: /health, interval: 20ms}}
  abstract: {discover: static, protocol: http, endpoints: ["unix:@DIR/app"], connect_timeout: 15s, check: {tcp: true, interval: 20ms}}
  linked: {discover: static, protocol: link, endpoints: ["unix:DIR/link"], connect_timeout: 15s}`, "DIR", dir))
	p.Ready()
	if info, err := os.Lstat(in("a")); err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	long := strings.Repeat("0123456789", 100_000)
	check := func() {
		t.Helper()
		for _, name := range []string{in("a"), "@" + in("b"), in("c")} {
			c := unixClient(t, name)
			wantAnswer(t, c, "/short", "hi", "/short hi for 127.0.0.1")
			wantAnswer(t, c, "/long", long, "/long "+long+" for 127.0.0.1")
			c.CloseIdleConnections()
		}
	}
	check()
	old := p
	for range 2 {
		p = p.Replace()
		check()
		if code := old.ExitCode(); code != 0 {
			t.Errorf("the predecessor ended with %d", code)
		}
		old = p
		check()
	}
	_, metrics := p.Get("/metrics")
	if !strings.Contains(metrics, `endpoint="unix:`+in("app")) && !strings.Contains(metrics, `service="file"`) {
		t.Error("the metrics lack the service")
	}
	logged(t, in("log"), `"client":"unix"`)
	p.Signal(syscall.SIGTERM)
	p.Ends()
	for _, name := range []string{"a", "c", "link"} {
		if fileExists(in(name)) {
			t.Errorf("%s is still there", name)
		}
	}
}

// TestUnixHTTPS: HTTPS passes over Unix sockets both ways, and a check of one asks for the name.
func TestUnixHTTPS(t *testing.T) {
	dir := harness.SocketDir(t)
	unixApp(t, filepath.Join(dir, "app"))
	ca := testcerts.New(t)
	files := harness.CertFiles(t, ca, "in.test")
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(strings.ReplaceAll(`
loops: 2
listeners:
  - {name: out, address: %q, protocol: http, service: secure}
  - {name: in, address: "unix:DIR/in", protocol: http, service: app, tls: {cert: %q, key: %q}}
services:
  secure: {discover: static, protocol: http, endpoints: ["unix:DIR/in"], connect_timeout: 15s, check: {http: /, interval: 20ms}, tls: {ca: %q, sni: in.test}}
  app: {discover: static, protocol: http, endpoints: ["unix:DIR/app"], connect_timeout: 15s}`, "DIR", dir), egress, files.Cert, files.Key, files.CA))
	p.Ready()
	for range 3 {
		if status, body, err := harness.GetAs(egress, "app", "/x"); status != 200 || !strings.HasPrefix(body, "/x ") || err != nil {
			t.Errorf("%d %q, %v", status, body, err)
		}
	}
}

// TestUnixAdmin: the admin API can be at a Unix socket, where the other commands find it.
func TestUnixAdmin(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := harness.SocketDir(t)
	admin, file := filepath.Join(dir, "admin"), filepath.Join(dir, "remora.yaml")
	must.WriteFile(t, file, fmt.Sprintf("admin: {address: %q}", "unix:"+admin))
	cmd := exec.Command(harness.Binary, "run", "-c", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for _, args := range [][]string{{"healthcheck", "--admin", "unix:" + admin}, {"healthcheck", "-c", file}, {"top", "--once", "-c", file}} {
		eventually.Nil(t, strings.Join(args, " "), func() error {
			if out, err := exec.Command(harness.Binary, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if out, err := exec.Command(harness.Binary, "drain", "--wait", "-c", file).CombinedOutput(); err != nil || string(out) != "drained\n" {
		t.Errorf("drain: %q, %v", out, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := harness.Receive(t, "the process to end", ended); err != nil || fileExists(admin) {
		t.Errorf("%v, file %t", err, fileExists(admin))
	}
	if out, err := exec.Command(harness.Binary, "drain", "-c", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "no sidecar") {
		t.Errorf("drain without a sidecar: %q, %v", out, err)
	}
}

// TestUnixInUse: a socket at which another process listens is left alone, and the error names the
// listener. A successor that fails leaves the sockets of its predecessor.
func TestUnixInUse(t *testing.T) {
	dir := harness.SocketDir(t)
	at := filepath.Join(dir, "s")
	unixApp(t, at)
	conf := `
listeners: [{name: here, address: "unix:AT", protocol: http, service: app}]
services: {app: {discover: static, protocol: http, endpoints: ["unix:DIR/app"]}}`
	p := harness.Start(t, strings.NewReplacer("AT", at, "DIR", dir).Replace(conf))
	if code := p.ExitCode(); code != 1 || !strings.Contains(p.Output.String(), "listeners[0].address: can't listen at unix:") ||
		!strings.Contains(p.Output.String(), "address already in use") || !fileExists(at) {
		t.Errorf("exit code %d, file %t", code, fileExists(at))
	}
	own := filepath.Join(dir, "own")
	p = harness.Start(t, strings.NewReplacer("AT", own, "DIR", dir).Replace(conf))
	p.Ready()
	p.Write(strings.NewReplacer("AT", own, "DIR", dir, "listeners: [", `listeners: [{name: taken, address: "unix:`+at+`", protocol: http, service: app}, `).Replace(conf))
	if code := p.Again().ExitCode(); code != 1 || !fileExists(own) {
		t.Errorf("the successor ended with %d, file %t", code, fileExists(own))
	}
	nc := must.Dial(t, "unix", own)
	nc.Close()
}

// namedApp is a server with TLS that says its name.
func namedApp(t *testing.T, name string) (addr string) {
	t.Helper()
	app := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s by %s", name, r.TLS.ServerName)
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// TestSNI: connections reach the service of the first route that takes their server name, with
// bytes unchanged; the rest gets an alert, and is counted and logged.
func TestSNI(t *testing.T) {
	free := harness.FreeAddrs(t, 2)
	in, behind := free[0], free[1]
	conf := fmt.Sprintf(`
loops: 1
timeouts: {header: 15s}
listeners:
  - {name: in, address: %q, protocol: tcp}
  - {name: behind, address: %q, protocol: tcp, proxy_protocol: {trust: [127.0.0.1]}}
routes:
  - {match: {sni: a.test}, service: exact}
  - {match: {sni: "*.a.test"}, service: wild}
  - {match: {sni: DEFAULT}, service: other}
services:
  exact: {discover: static, protocol: tcp, endpoints: [%q], connect_timeout: 15s}
  wild: {discover: static, protocol: tcp, endpoints: [%q], connect_timeout: 15s}
  other: {discover: static, protocol: tcp, endpoints: [%q], connect_timeout: 15s}`, in, behind, namedApp(t, "exact"), namedApp(t, "wild"), namedApp(t, "other"))
	p := harness.Start(t, strings.ReplaceAll(conf, "DEFAULT", "only.test"))
	p.Ready()
	ask := func(name string) (string, error) {
		client := http.Client{Timeout: harness.Patience, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{ServerName: name, InsecureSkipVerify: true},
		}}
		resp, err := client.Get("https://" + in + "/")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for name, want := range map[string]string{
		"a.test": "exact by a.test", "A.TEST": "exact by A.TEST", "b.a.test": "wild by b.a.test", "only.test": "other by only.test",
	} {
		if got, err := ask(name); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"c.b.a.test", "b.test", ""} {
		if got, err := ask(name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	p.Says(t, "no route takes its server name")
	p.Counts(`remora_errors_total{code="no-route",listener="in"}`, 3)
	proxy := harness.Dial(t, "tcp", behind)
	defer proxy.Close()
	must.Write(t, proxy, "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n")
	if err := tls.Client(proxy, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true}).Handshake(); err != nil {
		t.Errorf("behind a proxy: %v", err)
	}
	nc := harness.Dial(t, "tcp", in)
	defer nc.Close()
	must.Write(t, nc, "GET / HTTP/1.1\r\n\r\n")
	if b, err := io.ReadAll(nc); len(b) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without TLS: %q, %v", b, err)
	}
	p.Says(t, "no ClientHello of TLS")
	p.Counts(`remora_errors_total{code="bad-client-hello",listener="in"}`, 1)
	p.Write(strings.ReplaceAll(conf, "DEFAULT", `"*"`))
	p.Signal(syscall.SIGHUP)
	p.Says(t, "outcome=applied")
	for _, name := range []string{"b.test", ""} {
		if got, err := ask(name); got != "other by "+name || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

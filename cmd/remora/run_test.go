package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// app is an application. It responds at once, except to /slow, which waits for release.
type app struct {
	addr    string
	arrived chan struct{} // gets a value at each request of /slow
	release chan struct{} // closed to let those respond
}

// bigBody is the size of the response to /big: larger than socket buffers, and just
// within limits.message.
const bigBody = 4<<20 - 1<<10

func newApp(t *testing.T) *app {
	a := &app{arrived: make(chan struct{}, 64), release: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			a.arrived <- struct{}{}
			select {
			case <-a.release:
			case <-r.Context().Done():
			}
		}
		if r.URL.Path == "/big" {
			_, _ = w.Write(make([]byte, bigBody))
			return
		}
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.Method+" "), r.Body))
	}))
	t.Cleanup(func() {
		select {
		case <-a.release:
		default:
			close(a.release)
		}
		srv.Close()
	})
	a.addr = srv.Listener.Addr().String()
	return a
}

// consumer starts a sidecar in front of an application, and returns its listener's
// address.
func consumer(t *testing.T, a *app, more string) (*process, string) {
	egress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_concurrency: 8}}
%s`, egress, a.addr, more))
	return p, egress
}

func TestRun(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	for range 3 {
		resp, err := http.Post("http://"+egress+"/x", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != "POST hello" {
			t.Fatalf("response %d %q", resp.StatusCode, body)
		}
	}
	for path, want := range map[string]string{
		"/healthz":      `^ok\n$`,
		"/config":       `(?s)listeners:.*name: egress.*max_concurrency: 8`,
		"/":             `(?s)<title>Remora.*href="/readyz".*/milliseconds`,
		"/metrics":      `(?m)^remora_requests_total\{outcome="2xx",service="app"\} 3$`,
		"/endpoints":    `(?s)"app": \{.*"source": "live".*"address": "` + a.addr + `"`,
		"/debug/pprof/": `goroutine`,
	} {
		status, body := p.get(path)
		if status != 200 || !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s: response %d %s", path, status, body)
		}
	}
	_, body := p.get("/hedging")
	var hedging struct {
		Services map[string]struct {
			Mode     string
			Requests int
		}
	}
	if err := json.Unmarshal([]byte(body), &hedging); err != nil ||
		hedging.Services["app"].Mode != "shadow" || hedging.Services["app"].Requests != 3 {
		t.Errorf("/hedging: response %s: %v", body, err)
	}
	p.signal(syscall.SIGINT)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// slow sends a request, and returns when the application has it. Its response waits.
func slow(t *testing.T, a *app, egress string) <-chan *http.Response {
	t.Helper()
	response := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/slow")
		if err != nil {
			t.Errorf("the slow request failed: %v", err)
			resp = &http.Response{Body: http.NoBody}
		}
		response <- resp
	}()
	receive(t, "the slow request to arrive", a.arrived)
	return response
}

// TestDrainBySignal: during a drain a request in flight gets its response, with
// Connection: close, and new connections are refused.
func TestDrainBySignal(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	response := slow(t, a, egress)
	p.signal(syscall.SIGTERM)
	p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
	refused(t, egress)
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("/healthz: response %d during the drain", status)
	}
	close(a.release)
	resp := receive(t, "the response", response)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "GET " || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("response %d %q, close %v, error %v", resp.StatusCode, body, resp.Close, err)
	}
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainSlowReader: a client that reads slowly still gets the whole response during a
// drain.
func TestDrainSlowReader(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	conn, err := net.Dial("tcp", egress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, "the response to be on its way", func() error {
		if _, body := p.get("/metrics"); !strings.Contains(body, `remora_requests_total{outcome="2xx",service="app"} 1`) {
			return errors.New("it is not counted")
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	refused(t, egress)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != bigBody || err != nil {
		t.Errorf("%d bytes of %d arrived: %v", n, bigBody, err)
	}
	conn.Close()
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSecondSignal: a second signal ends the process although a request is in flight.
func TestSecondSignal(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	go func() {
		if resp, err := http.Get("http://" + egress + "/slow"); err == nil {
			resp.Body.Close()
			t.Error("the slow request got a response")
		}
	}()
	receive(t, "the slow request to arrive", a.arrived)
	p.signal(syscall.SIGTERM)
	p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainTimeout: requests that do not end within timeouts.drain are cut off.
func TestDrainTimeout(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "timeouts: {drain: 50ms}")
	p.ready()
	cut := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/slow")
		if err == nil {
			resp.Body.Close()
		}
		cut <- err
	}()
	receive(t, "the slow request to arrive", a.arrived)
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := receive(t, "the connection to end", cut); err == nil {
		t.Error("the slow request got a response")
	}
	if !strings.Contains(p.output.String(), "pending=1") {
		t.Error("the log does not have the number of requests that were cut off")
	}
}

// TestDrainByAPI: POST /drain drains the sidecar without ending the process.
func TestDrainByAPI(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	response := slow(t, a, egress)
	for range 2 { // a second time changes nothing
		resp, err := http.Post("http://"+p.admin+"/drain", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("/drain: response %d", resp.StatusCode)
		}
	}
	p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
	refused(t, egress)
	close(a.release)
	resp := receive(t, "the response", response)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("response %d", resp.StatusCode)
	}
	p.await("/readyz", http.StatusServiceUnavailable, "drained\n")
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestRunLogsWarnings: the log has the warnings of the configuration, at the start and after a
// reload that applies it.
func TestRunLogsWarnings(t *testing.T) {
	a, egress := newApp(t), freeAddrs(t, 1)[0]
	unused := func(name string) string {
		return oneApp(egress, a.addr, fmt.Sprintf("}, %s: {discover: static, endpoints: [%q], protocol: http", name, a.addr))
	}
	p := startRemora(t, unused("first"))
	p.ready()
	p.says(t, `level=WARN msg="configuration: not used: no listener and no route leads to it" key=services.first`)
	p.write(unused("second"))
	p.signal(syscall.SIGHUP)
	p.says(t, "key=services.second")
}

func TestRunFailures(t *testing.T) {
	p := startRemora(t, "loops: x\nnode: {idd: y}")
	if code := p.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if out := p.output.String(); !regexp.MustCompile(`^\S+\.yaml:1:8: loops: .*\n\S+\.yaml:2:8: node\.idd: .*\n$`).MatchString(out) {
		t.Errorf("a wrong configuration: %s", out)
	}
}

// healthcheckSays waits for an exit code and an output. It repeats the health check,
// because a sidecar on a busy machine may exceed its timeout.
func healthcheckSays(t *testing.T, want int, out string, args ...string) {
	t.Helper()
	eventually.Nil(t, fmt.Sprintf("healthcheck %v", args), func() error {
		cmd := exec.Command(binary, append([]string{"healthcheck"}, args...)...)
		said, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(said), out) {
			return fmt.Errorf("exit code %d: %s", code, said)
		}
		return nil
	})
}

func TestHealthcheck(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	healthcheckSays(t, 0, "", "--admin", p.admin)
	healthcheckSays(t, 0, "", "-c", p.file)
	healthcheckSays(t, exitUsage, "admin config", "--admin", p.admin, "-c", p.file)
	healthcheckSays(t, exitFailed, "405", "--admin", p.admin+"/drain?")
	healthcheckSays(t, exitFailed, "no such file", "-c", p.file+"x")
	response := slow(t, a, egress)
	p.signal(syscall.SIGTERM)
	p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
	healthcheckSays(t, exitFailed, "503 Service Unavailable: draining", "--admin", p.admin)
	healthcheckSays(t, 0, "", "--admin", p.admin, "--live")
	close(a.release)
	receive(t, "the response", response).Body.Close()
	p.exitCode()
	healthcheckSays(t, exitFailed, "refused", "--admin", p.admin)
}

// TestAdminToken: with admin.token the admin API requires the token, except for health
// checks.
func TestAdminToken(t *testing.T) {
	t.Setenv("REMORA_TEST_TOKEN", "correct-horse")
	p, _ := consumer(t, newApp(t), "")
	p.ready()
	ask := func(authorization string) int {
		req, err := http.NewRequest(http.MethodGet, "http://"+p.admin+"/config", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", authorization)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask("Bearer correct-horse"); got != http.StatusOK {
		t.Errorf("/config with the token: %d", got)
	}
	if got := ask("Bearer wrong"); got != http.StatusUnauthorized {
		t.Errorf("/config with another token: %d", got)
	}
	for _, args := range [][]string{{"--admin", p.admin}, {"-c", p.file}, {"-c", p.file, "--live"}} {
		healthcheckSays(t, 0, "", args...)
	}
}

package commands

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

func TestRun(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	for range 3 {
		resp, body := must.Post(t, http.DefaultClient, "http://"+egress+"/x", "text/plain", strings.NewReader("hello"))
		if resp.StatusCode != 200 || body != "POST hello" {
			t.Fatalf("response %d %q", resp.StatusCode, body)
		}
	}
	for path, want := range map[string]string{
		"/healthz":      `^ok\n$`,
		"/config":       `(?s)listeners:.*name: egress.*max_concurrency: 8`,
		"/":             `(?s)<title>Remora.*href="/readyz".*/milliseconds`,
		"/metrics":      `(?m)^remora_requests_total\{outcome="2xx",service="app"\} 3$`,
		"/endpoints":    `(?s)"app": \{.*"source": "live".*"address": "` + a.Addr + `"`,
		"/debug/pprof/": `goroutine`,
	} {
		status, body := p.Get(path)
		if status != 200 || !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s: response %d %s", path, status, body)
		}
	}
	_, body := p.Get("/hedging")
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
	p.Signal(syscall.SIGINT)
	p.Ends()
}

// TestDrainBySignal: during a drain a request in flight gets its response, with
// Connection: close, and new connections are refused.
func TestDrainBySignal(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	response := harness.Slow(t, a, egress)
	p.Signal(syscall.SIGTERM)
	p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
	harness.Refused(t, egress)
	if status, _ := p.Get("/healthz"); status != 200 {
		t.Errorf("/healthz: response %d during the drain", status)
	}
	close(a.Release)
	resp := harness.Receive(t, "the response", response)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "GET " || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("response %d %q, close %v, error %v", resp.StatusCode, body, resp.Close, err)
	}
	p.Ends()
}

// TestDrainSlowReader: a client that reads slowly still gets the whole response during a
// drain.
func TestDrainSlowReader(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	conn := must.Dial(t, "tcp", egress)
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	must.Write(t, conn, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually.Nil(t, "the response to be on its way", func() error {
		if _, body := p.Get("/metrics"); !strings.Contains(body, `remora_requests_total{outcome="2xx",service="app"} 1`) {
			return errors.New("it is not counted")
		}
		return nil
	})
	p.Signal(syscall.SIGTERM)
	harness.Refused(t, egress)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != harness.BigBody || err != nil {
		t.Errorf("%d bytes of %d arrived: %v", n, harness.BigBody, err)
	}
	conn.Close()
	p.Ends()
}

// TestSecondSignal: a second signal ends the process although a request is in flight.
func TestSecondSignal(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	go func() {
		if resp, err := http.Get("http://" + egress + "/slow"); err == nil {
			resp.Body.Close()
			t.Error("the slow request got a response")
		}
	}()
	harness.Receive(t, "the slow request to arrive", a.Arrived)
	p.Signal(syscall.SIGTERM)
	p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != harness.ExitFailed {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainTimeout: requests that do not end within timeouts.drain are cut off.
func TestDrainTimeout(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "timeouts: {drain: 50ms}")
	p.Ready()
	cut := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/slow")
		if err == nil {
			resp.Body.Close()
		}
		cut <- err
	}()
	harness.Receive(t, "the slow request to arrive", a.Arrived)
	p.Signal(syscall.SIGTERM)
	p.Ends()
	if err := harness.Receive(t, "the connection to end", cut); err == nil {
		t.Error("the slow request got a response")
	}
	if !strings.Contains(p.Output.String(), "pending=1") {
		t.Error("the log does not have the number of requests that were cut off")
	}
}

// TestDrainByAPI: POST /drain drains the sidecar without ending the process.
func TestDrainByAPI(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	response := harness.Slow(t, a, egress)
	for range 2 { // a second time changes nothing
		resp, _ := must.Post(t, http.DefaultClient, "http://"+p.Admin+"/drain", "", nil)
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("/drain: response %d", resp.StatusCode)
		}
	}
	p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
	harness.Refused(t, egress)
	close(a.Release)
	resp := harness.Receive(t, "the response", response)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("response %d", resp.StatusCode)
	}
	p.Await("/readyz", http.StatusServiceUnavailable, "drained\n")
	p.Signal(syscall.SIGTERM)
	p.Ends()
}

// TestRunLogsWarnings: the log has the warnings of the configuration, at the start and after a
// reload that applies it.
func TestRunLogsWarnings(t *testing.T) {
	a, egress := harness.NewApp(t), harness.FreeAddrs(t, 1)[0]
	unused := func(name string) string {
		return harness.OneApp(egress, a.Addr, fmt.Sprintf("}, %s: {discover: static, endpoints: [%q], protocol: http", name, a.Addr))
	}
	p := harness.Start(t, unused("first"))
	p.Ready()
	p.Says(t, `level=WARN msg="configuration: not used: no listener and no route leads to it" key=services.first`)
	p.Write(unused("second"))
	p.Signal(syscall.SIGHUP)
	p.Says(t, "key=services.second")
}

func TestRunFailures(t *testing.T) {
	p := harness.Start(t, "loops: x\nnode: {idd: y}")
	if code := p.ExitCode(); code != harness.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if out := p.Output.String(); !regexp.MustCompile(`^\S+\.yaml:1:8: loops: .*\n\S+\.yaml:2:8: node\.idd: .*\n$`).MatchString(out) {
		t.Errorf("a wrong configuration: %s", out)
	}
}

// healthcheckSays waits for an exit code and an output. It repeats the health check,
// because a sidecar on a busy machine may exceed its timeout.
func healthcheckSays(t *testing.T, want int, out string, args ...string) {
	t.Helper()
	eventually.Nil(t, fmt.Sprintf("healthcheck %v", args), func() error {
		cmd := exec.Command(harness.Binary, append([]string{"healthcheck"}, args...)...)
		said, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(said), out) {
			return fmt.Errorf("exit code %d: %s", code, said)
		}
		return nil
	})
}

func TestHealthcheck(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	healthcheckSays(t, 0, "", "--admin", p.Admin)
	healthcheckSays(t, 0, "", "-c", p.File)
	healthcheckSays(t, harness.ExitUsage, "admin config", "--admin", p.Admin, "-c", p.File)
	healthcheckSays(t, harness.ExitFailed, "405", "--admin", p.Admin+"/drain?")
	healthcheckSays(t, harness.ExitFailed, "no such file", "-c", p.File+"x")
	response := harness.Slow(t, a, egress)
	p.Signal(syscall.SIGTERM)
	p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
	healthcheckSays(t, harness.ExitFailed, "503 Service Unavailable: draining", "--admin", p.Admin)
	healthcheckSays(t, 0, "", "--admin", p.Admin, "--live")
	close(a.Release)
	harness.Receive(t, "the response", response).Body.Close()
	p.ExitCode()
	healthcheckSays(t, harness.ExitFailed, "refused", "--admin", p.Admin)
}

// TestAdminToken: with admin.token the admin API requires the token, except for health
// checks.
func TestAdminToken(t *testing.T) {
	t.Setenv("REMORA_TEST_TOKEN", "correct-horse")
	p, _ := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	ask := func(authorization string) int {
		req := must.Request(t, http.MethodGet, "http://"+p.Admin+"/config", nil)
		req.Header.Set("Authorization", authorization)
		resp, _ := must.Do(t, http.DefaultClient, req)
		return resp.StatusCode
	}
	if got := ask("Bearer correct-horse"); got != http.StatusOK {
		t.Errorf("/config with the token: %d", got)
	}
	if got := ask("Bearer wrong"); got != http.StatusUnauthorized {
		t.Errorf("/config with another token: %d", got)
	}
	for _, args := range [][]string{{"--admin", p.Admin}, {"-c", p.File}, {"-c", p.File, "--live"}} {
		healthcheckSays(t, 0, "", args...)
	}
}

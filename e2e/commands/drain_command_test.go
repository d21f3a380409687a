package commands

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/cmd/remora/adminclient"
	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// runDrain runs "remora drain", and returns its exit code and output.
func runDrain(args ...string) (code int, output string) { return harness.Run("drain", args...) }

// TestDrainCommand: "remora drain" starts a drain; with --wait it ends with the drain.
func TestDrainCommand(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	response := harness.Slow(t, a, egress)
	if code, out := runDrain("--admin", p.Admin); code != 0 || out != "draining\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	harness.Refused(t, egress)
	if code, out := runDrain("--admin", p.Admin, "--wait", "--timeout", "1ms"); code != harness.ExitFailed || !strings.Contains(out, "not drained after 1ms: draining\n") {
		t.Errorf("with a request in flight: exit code %d: %s", code, out)
	}
	waited := make(chan error, 1)
	waiting := exec.Command(harness.Binary, "drain", "-c", p.File, "--wait")
	var said strings.Builder
	waiting.Stdout, waiting.Stderr = &said, &said
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { waited <- waiting.Wait() }()
	close(a.Release)
	if resp := harness.Receive(t, "the response", response); resp.StatusCode != http.StatusOK {
		t.Errorf("response %d", resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	if err := harness.Receive(t, "the command", waited); err != nil || said.String() != "drained\n" {
		t.Errorf("%v: %s", err, &said)
	}
	if code, out := runDrain("--admin", p.Admin, "--wait"); code != 0 || out != "drained\n" {
		t.Errorf("once more: exit code %d: %s", code, out)
	}
	p.Signal(syscall.SIGTERM)
	p.Ends()
}

// TestDrainCommandEnded: a process that ends while "remora drain" waits has drained.
func TestDrainCommandEnded(t *testing.T) {
	a := harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	response := harness.Slow(t, a, egress)
	waited := make(chan string, 1)
	go func() {
		code, out := runDrain("--admin", p.Admin, "--wait")
		waited <- fmt.Sprint(code, " ", out)
	}()
	p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
	p.Signal(syscall.SIGTERM)
	close(a.Release)
	harness.Receive(t, "the response", response).Body.Close()
	p.ExitCode()
	if got := harness.Receive(t, "the command", waited); got != "0 ended\n" && got != "0 drained\n" {
		t.Errorf("exit code and output: %s", got)
	}
}

// TestDrainCommandToken: the token comes from the environment or from the configuration.
func TestDrainCommandToken(t *testing.T) {
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p, _ := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	if code, out := runDrain("--admin", p.Admin); code != harness.ExitFailed || !strings.Contains(out, "401") || !strings.Contains(out, adminclient.TokenVariable) {
		t.Errorf("without a token: exit code %d: %s", code, out)
	}
	p.Await("/readyz", http.StatusOK, "ready\n")
	if code, out := runDrain("-c", p.File, "--wait"); code != 0 || out != "drained\n" {
		t.Errorf("with the configuration: exit code %d: %s", code, out)
	}
	t.Setenv(adminclient.TokenVariable, "secret")
	if code, out := runDrain("--admin", p.Admin); code != 0 || out != "drained\n" {
		t.Errorf("with the environment: exit code %d: %s", code, out)
	}
}

// TestDrainCommandFailures: a command that can't drain says why, and fails.
func TestDrainCommandFailures(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	nobody := harness.FreeAddrs(t, 1)[0]
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--admin " + nobody, harness.ExitFailed, "no sidecar has its admin API at " + nobody},
		{"--wait --admin " + nobody, harness.ExitFailed, "no sidecar has its admin API at " + nobody},
		{"--admin " + other.Listener.Addr().String(), harness.ExitFailed, "/drain: 404 Not Found"},
		{"--timeout 3s", harness.ExitUsage, "--timeout needs --wait"},
		{"--wait --timeout -3s", harness.ExitUsage, "expected a time such as 30s, got -3s"},
		{"--wait --timeout soon", harness.ExitUsage, "invalid argument"},
		{"-c /none", harness.ExitFailed, "no such file"},
		{"more", harness.ExitUsage, "unknown command"},
	} {
		// Another process may take the free address for a moment.
		eventually.Nil(t, "drain "+c.args, func() error {
			if code, out := runDrain(strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
				return errors.New(fmt.Sprint(code, " ", out))
			}
			return nil
		})
	}
}

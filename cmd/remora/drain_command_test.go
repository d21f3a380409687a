package main

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
	"github.com/remora-proxy/remora/internal/eventually"
)

// runDrain runs "remora drain", and returns its exit code and output.
func runDrain(args ...string) (code int, output string) { return runCommand("drain", args...) }

// TestDrainCommand: "remora drain" starts a drain; with --wait it ends with the drain.
func TestDrainCommand(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	response := slow(t, a, egress)
	if code, out := runDrain("--admin", p.admin); code != 0 || out != "draining\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	refused(t, egress)
	if code, out := runDrain("--admin", p.admin, "--wait", "--timeout", "1ms"); code != exitFailed || !strings.Contains(out, "not drained after 1ms: draining\n") {
		t.Errorf("with a request in flight: exit code %d: %s", code, out)
	}
	waited := make(chan error, 1)
	waiting := exec.Command(binary, "drain", "-c", p.file, "--wait")
	var said strings.Builder
	waiting.Stdout, waiting.Stderr = &said, &said
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { waited <- waiting.Wait() }()
	close(a.release)
	if resp := receive(t, "the response", response); resp.StatusCode != http.StatusOK {
		t.Errorf("response %d", resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	if err := receive(t, "the command", waited); err != nil || said.String() != "drained\n" {
		t.Errorf("%v: %s", err, &said)
	}
	if code, out := runDrain("--admin", p.admin, "--wait"); code != 0 || out != "drained\n" {
		t.Errorf("once more: exit code %d: %s", code, out)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainCommandEnded: a process that ends while "remora drain" waits has drained.
func TestDrainCommandEnded(t *testing.T) {
	a := newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	response := slow(t, a, egress)
	waited := make(chan string, 1)
	go func() {
		code, out := runDrain("--admin", p.admin, "--wait")
		waited <- fmt.Sprint(code, " ", out)
	}()
	p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
	p.signal(syscall.SIGTERM)
	close(a.release)
	receive(t, "the response", response).Body.Close()
	p.exitCode()
	if got := receive(t, "the command", waited); got != "0 ended\n" && got != "0 drained\n" {
		t.Errorf("exit code and output: %s", got)
	}
}

// TestDrainCommandToken: the token comes from the environment or from the configuration.
func TestDrainCommandToken(t *testing.T) {
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p, _ := consumer(t, newApp(t), "")
	p.ready()
	if code, out := runDrain("--admin", p.admin); code != exitFailed || !strings.Contains(out, "401") || !strings.Contains(out, adminclient.TokenVariable) {
		t.Errorf("without a token: exit code %d: %s", code, out)
	}
	p.await("/readyz", http.StatusOK, "ready\n")
	if code, out := runDrain("-c", p.file, "--wait"); code != 0 || out != "drained\n" {
		t.Errorf("with the configuration: exit code %d: %s", code, out)
	}
	t.Setenv(adminclient.TokenVariable, "secret")
	if code, out := runDrain("--admin", p.admin); code != 0 || out != "drained\n" {
		t.Errorf("with the environment: exit code %d: %s", code, out)
	}
}

// TestDrainCommandFailures: a command that can't drain says why, and fails.
func TestDrainCommandFailures(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	nobody := freeAddrs(t, 1)[0]
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--admin " + nobody, exitFailed, "no sidecar has its admin API at " + nobody},
		{"--wait --admin " + nobody, exitFailed, "no sidecar has its admin API at " + nobody},
		{"--admin " + other.Listener.Addr().String(), exitFailed, "/drain: 404 Not Found"},
		{"--timeout 3s", exitUsage, "--timeout needs --wait"},
		{"--wait --timeout -3s", exitUsage, "expected a time such as 30s, got -3s"},
		{"--wait --timeout soon", exitUsage, "invalid argument"},
		{"-c /none", exitFailed, "no such file"},
		{"more", exitUsage, "unknown command"},
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

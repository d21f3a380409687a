package restart

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// TestLogReaderGone: a log without a reader ends neither the process nor its successor,
// which has the same log.
func TestLogReaderGone(t *testing.T) {
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	template := &harness.Process{T: t, Admin: harness.FreeAddrs(t, 1)[0], File: filepath.Join(t.TempDir(), "remora.yaml")}
	template.Write(harness.OneApp(egress, a.Addr, ""))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	run := func(after *harness.Process) *harness.Process {
		cmd := after.Command()
		cmd.Stderr = w
		return after.Launch(cmd)
	}
	p := run(template)
	p.Ready()
	r.Close()
	serves := func(p *harness.Process) {
		t.Helper()
		p.Signal(syscall.SIGHUP) // logs a line
		eventually.Nil(t, "the reload", func() error {
			select {
			case <-p.Exited:
				t.Fatalf("the process has ended: %v", p.Cmd.ProcessState)
			default:
			}
			if n := p.Metric(`remora_config_reloads_total{outcome="unchanged"}`); n != 1 {
				return fmt.Errorf("%d reloads", n)
			}
			return nil
		})
		if status, _, _, err := harness.Get(egress); status != http.StatusOK || err != nil {
			t.Errorf("response %d, %v", status, err)
		}
	}
	serves(p)
	next := run(p)
	next.Serves(1)
	serves(next)
	for _, p := range []*harness.Process{p, next} {
		if p == next {
			p.Signal(syscall.SIGTERM)
		}
		p.Ends()
	}
}

// busy returns a sidecar with a request of client in flight, until the test releases the
// application.
func busy(t *testing.T) (a *harness.App, p *harness.Process, client *keptAlive) {
	t.Helper()
	a = harness.NewApp(t)
	p, egress := harness.Consumer(t, a, "")
	p.Ready()
	client = keepAlive(t, egress)
	client.send("/slow")
	harness.Receive(t, "the slow request to arrive", a.Arrived)
	return a, p, client
}

// TestSignalAfterReplaced: the first signal to a process that was replaced changes
// nothing, because it already drains. The second ends it.
func TestSignalAfterReplaced(t *testing.T) {
	for _, c := range []struct {
		name string
		end  bool // ended by a second signal
		code int
	}{{"one signal", false, 0}, {"two signals", true, harness.ExitFailed}} {
		t.Run(c.name, func(t *testing.T) {
			a, p, client := busy(t)
			p.Replace()
			p.Signal(syscall.SIGTERM)
			p.Says(t, "signal=terminated")
			if c.end {
				p.Signal(syscall.SIGTERM)
			} else {
				close(a.Release)
				client.readResponse()
			}
			if code := p.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

// TestDrainAwaitsPredecessor: a process does not end before its predecessors. At the end of
// the main process a service manager would kill them.
func TestDrainAwaitsPredecessor(t *testing.T) {
	a, first, client := busy(t)
	second := first.Replace()
	third := second.Replace()
	third.Signal(syscall.SIGTERM)
	for _, p := range []*harness.Process{second, third} {
		p.Says(t, "waiting for the end of the predecessor")
	}
	close(a.Release)
	client.readResponse()
	for _, p := range []*harness.Process{first, second, third} {
		p.Ends()
	}
}

// TestRestartWhileDraining: a draining process starts no successor. That would find no
// predecessor, or replace another successor.
func TestRestartWhileDraining(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(p *harness.Process)
	}{
		{"replaced", func(p *harness.Process) { p.Replace() }},
		{"draining", func(p *harness.Process) {
			p.Signal(syscall.SIGTERM)
			p.Await("/readyz", http.StatusServiceUnavailable, "draining\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p, client := busy(t)
			c.leave(p)
			p.Signal(syscall.SIGUSR2)
			p.Says(t, "not replaced")
			if out := p.Output.String(); strings.Contains(out, "successor started") {
				t.Errorf("it starts a successor: %s", out)
			}
			close(a.Release)
			client.readResponse()
			p.Ends()
		})
	}
}

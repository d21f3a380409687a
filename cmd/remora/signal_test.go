package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// TestLogReaderGone: a log without a reader ends neither the process nor its successor,
// which has the same log.
func TestLogReaderGone(t *testing.T) {
	a := newApp(t)
	egress := freeAddrs(t, 1)[0]
	template := &process{t: t, admin: freeAddrs(t, 1)[0], file: filepath.Join(t.TempDir(), "remora.yaml")}
	template.write(oneApp(egress, a.addr, ""))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	run := func() *process {
		cmd := exec.Command(binary, "run", "-c", template.file)
		cmd.Stderr = w
		return template.launch(cmd)
	}
	p := run()
	p.ready()
	r.Close()
	serves := func(p *process) {
		t.Helper()
		p.signal(syscall.SIGHUP) // logs a line
		eventually.Nil(t, "the reload", func() error {
			select {
			case <-p.exited:
				t.Fatalf("the process has ended: %v", p.cmd.ProcessState)
			default:
			}
			if n := p.metric(`remora_config_reloads_total{outcome="unchanged"}`); n != 1 {
				return fmt.Errorf("%d reloads", n)
			}
			return nil
		})
		if status, _, _, err := get(egress); status != http.StatusOK || err != nil {
			t.Errorf("response %d, %v", status, err)
		}
	}
	serves(p)
	next := run()
	next.serves(1)
	serves(next)
	for _, p := range []*process{p, next} {
		if p == next {
			p.signal(syscall.SIGTERM)
		}
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d: %v", code, p.cmd.ProcessState)
		}
	}
}

// busy returns a sidecar with a request of client in flight, until the test releases the
// application.
func busy(t *testing.T) (a *app, p *process, client *keptAlive) {
	t.Helper()
	a = newApp(t)
	p, egress := consumer(t, a, "")
	p.ready()
	client = keepAlive(t, egress)
	client.send("/slow")
	receive(t, "the slow request to arrive", a.arrived)
	return a, p, client
}

// TestSignalAfterReplaced: the first signal to a process that was replaced changes
// nothing, because it already drains. The second ends it.
func TestSignalAfterReplaced(t *testing.T) {
	for _, c := range []struct {
		name string
		end  bool // ended by a second signal
		code int
	}{{"one signal", false, 0}, {"two signals", true, exitFailed}} {
		t.Run(c.name, func(t *testing.T) {
			a, p, client := busy(t)
			p.replace()
			p.signal(syscall.SIGTERM)
			p.says(t, "signal=terminated")
			if c.end {
				p.signal(syscall.SIGTERM)
			} else {
				close(a.release)
				client.readResponse()
			}
			if code := p.exitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

// TestDrainAwaitsPredecessor: a process does not end before its predecessors. At the end of
// the main process a service manager would kill them.
func TestDrainAwaitsPredecessor(t *testing.T) {
	a, first, client := busy(t)
	second := first.replace()
	third := second.replace()
	third.signal(syscall.SIGTERM)
	for _, p := range []*process{second, third} {
		p.says(t, "waiting for the end of the predecessor")
	}
	close(a.release)
	client.readResponse()
	for _, p := range []*process{first, second, third} {
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestRestartWhileDraining: a draining process starts no successor. That would find no
// predecessor, or replace another successor.
func TestRestartWhileDraining(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(p *process)
	}{
		{"replaced", func(p *process) { p.replace() }},
		{"draining", func(p *process) {
			p.signal(syscall.SIGTERM)
			p.await("/readyz", http.StatusServiceUnavailable, "draining\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p, client := busy(t)
			c.leave(p)
			p.signal(syscall.SIGUSR2)
			p.says(t, "not replaced")
			if out := p.output.String(); strings.Contains(out, "successor started") {
				t.Errorf("it starts a successor: %s", out)
			}
			close(a.release)
			client.readResponse()
			if code := p.exitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestSignalsDuringStart: the first signal ends a start without an error, or else drains
// the sidecar that has started. The second ends the process at once.
func TestSignalsDuringStart(t *testing.T) {
	serving := new(sidecar)
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		signals int
		start   func(ctx context.Context) (*sidecar, error)
		s       *sidecar
		err     error
		left    int // signals that are left for the sidecar
	}{
		{"none", 0, func(context.Context) (*sidecar, error) { return serving, nil }, serving, nil, 0},
		{"none, and it fails", 0, func(context.Context) (*sidecar, error) { return nil, broken }, nil, broken, 0},
		{"in time", 1, func(ctx context.Context) (*sidecar, error) { <-ctx.Done(); return nil, ctx.Err() }, nil, nil, 0},
		{"too late", 1, func(ctx context.Context) (*sidecar, error) { <-ctx.Done(); return serving, nil }, serving, nil, 1},
		{"and it fails", 1, func(ctx context.Context) (*sidecar, error) { <-ctx.Done(); return nil, broken }, nil, broken, 0},
		{"twice", 2, func(context.Context) (*sidecar, error) { <-t.Context().Done(); return nil, nil }, nil, errInterrupted, 0},
	} {
		signals := make(chan os.Signal, 2)
		for range c.signals {
			signals <- syscall.SIGTERM
		}
		s, err := startUnless(signals, c.start)
		if s != c.s || err != c.err || len(signals) != c.left {
			t.Errorf("%s: %v, %v, %d signals left", c.name, s, err, len(signals))
		}
	}
}

// says waits until the log of the process contains what.
func (p *process) says(t *testing.T, what string) {
	t.Helper()
	eventually.Nil(t, fmt.Sprintf("the log to say %q", what), func() error {
		ended := false
		select {
		case <-p.exited:
			ended = true // so the log is complete
		default:
		}
		out := p.output.String()
		switch {
		case strings.Contains(out, what):
			return nil
		case ended:
			t.Fatal("the process has ended")
		}
		return errors.New(out)
	})
}

package harness

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// SocketDir returns a directory whose name is short enough for a socket in it.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "remora-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Engine returns the engine of a sidecar, as /readyz?verbose says.
func (p *Process) Engine() string {
	p.T.Helper()
	_, body := p.Get("/readyz?verbose")
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "engine: "); ok {
			return strings.TrimSpace(name)
		}
	}
	p.T.Fatalf("no engine in %q", body)
	return ""
}

// AnotherEngine returns the name of an engine that works here, and is not this one.
func AnotherEngine(than string) string {
	for _, name := range engine.Names() {
		if e, err := engine.Find(name); err == nil && e.Name != than {
			return e.Name
		}
	}
	return than
}

// Reload applies yaml with SIGHUP, and waits for the given outcome.
func (p *Process) Reload(yaml, want string) {
	p.T.Helper()
	before := p.Metric(Outcome(want))
	p.Write(yaml)
	p.Signal(syscall.SIGHUP)
	eventually.Nil(p.T, "a reload to be "+want, func() error {
		if p.Metric(Outcome(want)) == before {
			_, body := p.Get("/config")
			return fmt.Errorf("%s", strings.SplitN(body, "\nnode:", 2)[0])
		}
		return nil
	})
}

// Replace starts a successor of p, and waits until it serves.
func (p *Process) Replace(flags ...string) *Process {
	p.T.Helper()
	restarts := p.Metric("remora_hot_restarts")
	q := p.Again(flags...)
	q.Serves(restarts + 1)
	p.Says(p.T, "msg=replaced") // the successor serves before p hears of it
	return q
}

// SuccessorPath returns the path at which p accepts successors.
func (p *Process) SuccessorPath() string {
	p.T.Helper()
	cfg, err := config.Load(p.File)
	if err != nil {
		p.T.Fatal(err)
	}
	return handover.Path(os.Getenv("RUNTIME_DIRECTORY"), p.File, cfg.Node.ID, cfg.Admin.Address)
}

// Serves waits for the admin API of the process that is the result of restarts hot
// restarts.
func (p *Process) Serves(restarts int) {
	p.T.Helper()
	eventually.Nil(p.T, "the successor to serve", func() error {
		select {
		case <-p.Exited:
			p.T.Fatal("the process has ended")
		default:
		}
		if n := p.Metric("remora_hot_restarts"); n != restarts {
			return fmt.Errorf("%d hot restarts", n)
		}
		return nil
	})
	p.Ready()
}

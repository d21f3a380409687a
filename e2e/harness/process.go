package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/proxy/admin"
)

// Exit codes of the program.
const (
	ExitFailed = 1 // the command did not succeed
	ExitUsage  = 2 // the command line is wrong
)

// EngineVariable of the environment names the engine of a sidecar. $ENGINE names it for all
// sidecars of the tests.
const EngineVariable = "REMORA_ENGINE"

// Patience bounds each wait of a test. It is long because the machine may be busy;
// nothing is measured with it.
const Patience = time.Minute

// Receive waits for a value from c.
func Receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("timeout waiting for %s", what)
		panic("not reached")
	}
}

// FreeAddrs returns n addresses on 127.0.0.1 on which no process listens. They are the test's
// until it ends.
func FreeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs, release, err := freeport.Loopback(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addrs
}

// Process is a sidecar in a process of its own.
type Process struct {
	T      *testing.T
	Cmd    *exec.Cmd
	File   string // of the configuration
	Admin  string // address of the admin API
	Output logFile
	Exited chan struct{} // closed once the process has ended

	starts int // of processes with this file, this one among them
}

// logFile is the log of a process and its successors. It is a file, because a pipe would
// break at the end of the test.
type logFile struct{ path string }

func (l logFile) String() string {
	b, err := os.ReadFile(l.path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// hasRace reports whether the race detector has found something. A process that is killed has no exit code that says so.
func (l logFile) hasRace() bool { return strings.Contains(l.String(), "WARNING: DATA RACE") }

// Start runs "remora run" with a configuration, to which it adds the admin API: its
// address, its token if $REMORA_TEST_TOKEN is set, and profiles unless $REMORA_TEST_PROFILES says no.
func Start(t *testing.T, yaml string, flags ...string) *Process {
	t.Helper()
	return NewProcess(t, yaml).Again(flags...)
}

// StartWithin is Start with so many file descriptors.
func StartWithin(t *testing.T, files int, yaml string) *Process {
	t.Helper()
	p := NewProcess(t, yaml)
	return p.Launch(exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s", files, strings.Join(p.Command().Args, " "))))
}

// NewProcess writes the configuration of a process that does not run yet.
func NewProcess(t *testing.T, yaml string) *Process {
	t.Helper()
	p := &Process{T: t, Admin: FreeAddrs(t, 1)[0]}
	p.File = filepath.Join(t.TempDir(), "remora.yaml")
	p.Write(yaml)
	return p
}

// Again runs "remora run" with the configuration of p.
func (p *Process) Again(flags ...string) *Process {
	p.T.Helper()
	return p.Launch(p.Command(flags...))
}

// Launch starts a sidecar with the configuration of p, until the test ends. Its output goes to its log unless cmd says
// otherwise. A data race in its log fails the test.
func (p *Process) Launch(cmd *exec.Cmd) *Process {
	p.T.Helper()
	out, err := os.CreateTemp(filepath.Dir(p.File), "log-")
	if err != nil {
		p.T.Fatal(err)
	}
	defer out.Close()
	q := &Process{T: p.T, Cmd: cmd, File: p.File, Admin: p.Admin, Output: logFile{out.Name()}, Exited: make(chan struct{}), starts: p.starts + 1}
	if cmd.Stdout = out; cmd.Stderr == nil {
		cmd.Stderr = out
	}
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	go func() {
		defer close(q.Exited)
		_ = cmd.Wait()
	}()
	p.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-q.Exited
		if q.Output.hasRace() {
			q.T.Errorf("a data race in the process with %s", q.File)
		}
		if q.T.Failed() {
			q.T.Logf("output of %s:\n%s", q.File, q.Output.String())
		}
	})
	return q
}

// AwaitLog waits until each of the regular expressions matches the output. The sidecar writes its log in the background,
// so a line may come after what it tells of.
func (p *Process) AwaitLog(patterns ...string) {
	p.T.Helper()
	for _, pattern := range patterns {
		line := regexp.MustCompile(pattern)
		eventually.True(p.T, "the log to match "+pattern, func() bool { return line.MatchString(p.Output.String()) })
	}
}

// Write replaces the configuration by yaml, with the additions of Start.
func (p *Process) Write(yaml string) {
	p.T.Helper()
	yaml += fmt.Sprintf(`
admin:
  address: %q
  token: "${REMORA_TEST_TOKEN:-}"
  profiles: ${REMORA_TEST_PROFILES:-true}
log: {level: debug, format: text}
`, p.Admin)
	if err := os.WriteFile(p.File+".new", []byte(yaml), 0o600); err != nil {
		p.T.Fatal(err)
	}
	if err := os.Rename(p.File+".new", p.File); err != nil {
		p.T.Fatal(err)
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.T.Fatal(err)
	}
}

// ExitCode waits for the end of the process.
func (p *Process) ExitCode() int {
	p.T.Helper()
	Receive(p.T, "the process to end", p.Exited)
	return p.Cmd.ProcessState.ExitCode()
}

// Ends waits for the process to end, without an error.
func (p *Process) Ends() {
	p.T.Helper()
	if code := p.ExitCode(); code != 0 {
		p.T.Errorf("exit code %d: %v", code, p.Cmd.ProcessState)
	}
}

// Get sends a request to the admin API. It repeats it while a loop does not respond in
// time, because the machine may be busy.
func (p *Process) Get(path string) (status int, body string) {
	p.T.Helper()
	eventually.Nil(p.T, "the loops to respond", func() error {
		if status, body = p.ask(path); strings.Contains(body, admin.NotResponding) {
			return errors.New(body)
		}
		return nil
	})
	return status, body
}

func (p *Process) ask(path string) (status int, body string) {
	resp, err := http.Get("http://" + p.Admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// Await waits until the admin API responds with the given status and body.
func (p *Process) Await(path string, status int, body string) {
	p.T.Helper()
	eventually.Nil(p.T, fmt.Sprintf("%s to respond %d %q", path, status, body), func() error {
		select {
		case <-p.Exited:
			p.T.Fatal("the process has ended")
		default:
		}
		if s, b := p.Get(path); s != status || body != "" && b != body {
			return fmt.Errorf("%d %q", s, b)
		}
		return nil
	})
}

// Ready waits until the sidecar is ready.
func (p *Process) Ready() { p.T.Helper(); p.Await("/readyz", http.StatusOK, "ready\n") }

// Refused waits until addr accepts no connection.
func Refused(t *testing.T, addr string) {
	t.Helper()
	eventually.Nil(t, "connections to be refused", func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return errors.New("accepted")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	})
}

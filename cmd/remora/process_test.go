package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "remora-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("RUNTIME_DIRECTORY", dir) // for the sockets of hot restarts
	if name := os.Getenv("ENGINE"); name != "" {
		os.Setenv(engineVariable, name)
	}
	binary = filepath.Join(dir, "remora")
	build := append([]string{"build", "-o", binary}, append(buildFlags, ".")...)
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// patience bounds each wait of a test. It is long because the machine may be busy;
// nothing is measured with it.
const patience = time.Minute

// receive waits for a value from c.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout waiting for %s", what)
		panic("not reached")
	}
}

// freeAddrs returns n addresses on 127.0.0.1 on which no process listens. They are the test's
// until it ends.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs, release, err := freeport.Loopback(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addrs
}

// runCommand runs a command of the program, and returns its exit code and output.
func runCommand(name string, args ...string) (code int, output string) {
	cmd := exec.Command(binary, append([]string{name}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// process is a sidecar in a process of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   string
	admin  string
	output logFile
	exited chan struct{}
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

// startRemora runs "remora run" with a configuration, to which it adds the admin API: its
// address, its token if $REMORA_TEST_TOKEN is set, and profiles unless $REMORA_TEST_PROFILES says no.
func startRemora(t *testing.T, yaml string, flags ...string) *process {
	t.Helper()
	return newProcess(t, yaml).again(flags...)
}

// startWithin is startRemora with so many file descriptors.
func startWithin(t *testing.T, files int, yaml string) *process {
	t.Helper()
	p := newProcess(t, yaml)
	return p.launch(exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s run -c %s", files, binary, p.file)))
}

// newProcess writes the configuration of a process that does not run yet.
func newProcess(t *testing.T, yaml string) *process {
	t.Helper()
	p := &process{t: t, admin: freeAddrs(t, 1)[0]}
	p.file = filepath.Join(t.TempDir(), "remora.yaml")
	p.write(yaml)
	return p
}

// again runs "remora run" with the configuration of p.
func (p *process) again(flags ...string) *process {
	p.t.Helper()
	return p.launch(exec.Command(binary, append([]string{"run", "-c", p.file}, flags...)...))
}

// launch starts a sidecar with the configuration of p. Its output goes to its log unless
// cmd says otherwise.
func (p *process) launch(cmd *exec.Cmd) *process {
	p.t.Helper()
	out, err := os.CreateTemp(filepath.Dir(p.file), "log-")
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	q := &process{t: p.t, cmd: cmd, file: p.file, admin: p.admin, output: logFile{out.Name()}, exited: make(chan struct{})}
	if cmd.Stdout = out; cmd.Stderr == nil {
		cmd.Stderr = out
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(q.exited)
		_ = cmd.Wait()
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-q.exited
		if q.t.Failed() {
			q.t.Logf("output of %s:\n%s", q.file, q.output.String())
		}
	})
	return q
}

// write replaces the configuration by yaml, with the additions of startRemora.
func (p *process) write(yaml string) {
	p.t.Helper()
	yaml += fmt.Sprintf(`
admin:
  address: %q
  token: "${REMORA_TEST_TOKEN:-}"
  profiles: ${REMORA_TEST_PROFILES:-true}
log: {level: debug, format: text}
`, p.admin)
	if err := os.WriteFile(p.file+".new", []byte(yaml), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// exitCode waits for the end of the process.
func (p *process) exitCode() int {
	p.t.Helper()
	receive(p.t, "the process to end", p.exited)
	return p.cmd.ProcessState.ExitCode()
}

// get sends a request to the admin API. It repeats it while a loop does not respond in
// time, because the machine may be busy.
func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	eventually.Nil(p.t, "the loops to respond", func() error {
		if status, body = p.ask(path); strings.Contains(body, "do not answer") {
			return errors.New(body)
		}
		return nil
	})
	return status, body
}

func (p *process) ask(path string) (status int, body string) {
	resp, err := http.Get("http://" + p.admin + path)
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

// await waits until the admin API responds with the given status and body.
func (p *process) await(path string, status int, body string) {
	p.t.Helper()
	eventually.Nil(p.t, fmt.Sprintf("%s to respond %d %q", path, status, body), func() error {
		select {
		case <-p.exited:
			p.t.Fatal("the process has ended")
		default:
		}
		if s, b := p.get(path); s != status || body != "" && b != body {
			return fmt.Errorf("%d %q", s, b)
		}
		return nil
	})
}

func (p *process) ready() { p.t.Helper(); p.await("/readyz", http.StatusOK, "ready\n") }

// refused waits until addr accepts no connection.
func refused(t *testing.T, addr string) {
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

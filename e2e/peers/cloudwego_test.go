package peers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// scripts/cloudwego.sh sets these.
var (
	cloudwegoProgram = flag.String("cloudwego", "", "test Hertz and Kitex with the program of scripts/cloudwego")
	cloudwegoLong    = flag.Bool("cloudwego-long", false, "test Hertz and Kitex at length")
)

// needCloudwego skips a test without the program.
func needCloudwego(t *testing.T) {
	t.Helper()
	if *cloudwegoProgram == "" {
		t.Skip("needs other programs: see scripts/cloudwego.sh")
	}
}

// cloudwegoServer is a server of Hertz or Kitex.
type cloudwegoServer struct {
	t      *testing.T
	argv   []string
	addr   string
	output string // the file of what it prints
	cmd    *exec.Cmd
}

// startCloudwego starts a server, which ends with the test.
func startCloudwego(t *testing.T, what string, flags ...string) *cloudwegoServer {
	t.Helper()
	s := &cloudwegoServer{t: t, addr: harness.FreeAddrs(t, 1)[0], output: filepath.Join(t.TempDir(), "output")}
	s.argv = append([]string{what, "-addr", s.addr}, flags...)
	t.Cleanup(func() {
		s.stop()
		if said, _ := os.ReadFile(s.output); t.Failed() {
			t.Logf("%s: %s", s.argv, said)
		}
	})
	s.start()
	return s
}

func (s *cloudwegoServer) start() {
	s.t.Helper()
	output, err := os.OpenFile(s.output, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer output.Close()
	s.cmd = exec.Command(*cloudwegoProgram, s.argv...)
	s.cmd.Stdout, s.cmd.Stderr = output, output
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	harness.AwaitListener(s.t, s.argv[0], s.addr)
}

// stop has the server end as it does at SIGTERM.
func (s *cloudwegoServer) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	killed := time.AfterFunc(harness.Patience, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	killed.Stop()
}

// says waits until the server has printed text.
func (s *cloudwegoServer) says(text string) {
	s.t.Helper()
	eventually.Nil(s.t, fmt.Sprintf("%q in the output", text), func() error {
		if b, err := os.ReadFile(s.output); err != nil || !strings.Contains(string(b), text) {
			return fmt.Errorf("%q, %v", b, err)
		}
		return nil
	})
}

// did counts how often servers carried out each call, by its id.
func did(t *testing.T, servers []*cloudwegoServer) map[string]int {
	t.Helper()
	times := map[string]int{}
	for _, s := range servers {
		b := must.ReadFile(t, s.output)
		for line := range strings.Lines(string(b)) {
			if id, found := strings.CutPrefix(strings.TrimSpace(line), "did "); found {
				times[id]++
			}
		}
	}
	return times
}

// hedged are the settings of a service in which each request may be hedged that may be carried out
// twice.
const hedged = "retry: {attempts: 2}, hedge: {mode: on, delay: 30ms, budget: 1}"

// startSidecars starts sidecars before endpoints that speak the protocol, and returns the last
// sidecar, which has the listener at addr.
type startSidecars func(t *testing.T, listens, speaks string, endpoints ...string) (p *harness.Process, addr string)

// cloudwegoWays are one sidecar, and two: then each endpoint has a sidecar of its own, too.
var cloudwegoWays = map[string]startSidecars{
	"one": hedgingSidecar,
	"two": func(t *testing.T, listens, speaks string, endpoints ...string) (p *harness.Process, addr string) {
		var links []string
		for _, endpoint := range endpoints {
			links = append(links, passingOn(t, "link", speaks, endpoint))
		}
		return hedgingSidecar(t, listens, "link", links...)
	},
}

// hedgingSidecar starts a sidecar with hedging, unless it has TCP alone. Calls of UnaryCall may be
// carried out twice.
func hedgingSidecar(t *testing.T, listens, speaks string, endpoints ...string) (p *harness.Process, addr string) {
	t.Helper()
	addr = harness.FreeAddrs(t, 1)[0]
	yaml := "routes: [{match: {path: /grpc.testing.TestService/UnaryCall}, service: app, idempotent: true}, {service: app}]"
	service, more := "", ", "+hedged
	if listens == "tcp" {
		yaml, service, more = "", ", service: app", ""
	}
	p = harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, protocol: %s%s}]
services: {app: {discover: static, endpoints: ["%s"], protocol: %s, connect_timeout: 15s, timeout: 1m%s}}
%s`, addr, listens, service, strings.Join(endpoints, `", "`), speaks, more, yaml))
	p.Ready()
	return p, addr
}

// loadClients is how many clients a load has.
const loadClients = 6

// cloudwegoLoad is clients that call as long as a test wants.
type cloudwegoLoad struct {
	done   atomic.Int64 // calls
	mu     sync.Mutex
	sent   map[string]error // the outcome of each call that may not be carried out twice
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// callAgain calls repeatedly from some clients: again may be carried out twice, once may not, and
// returns an error if the call may not have been carried out. It gets an id.
func callAgain(t *testing.T, again func() error, once func(id string) error) *cloudwegoLoad {
	ctx, cancel := context.WithCancel(t.Context())
	l := &cloudwegoLoad{sent: map[string]error{}, cancel: cancel}
	t.Cleanup(l.stop)
	for client := range loadClients {
		l.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := again(); err != nil {
					t.Error(err)
				}
				id := fmt.Sprintf("%d-%d", client, n)
				err := once(id)
				l.mu.Lock()
				l.sent[id] = err
				l.mu.Unlock()
				l.done.Add(2)
			}
		})
	}
	return l
}

// more waits for so many more calls.
func (l *cloudwegoLoad) more(t *testing.T, n int64) {
	t.Helper()
	goal := l.done.Load() + n
	eventually.Within(t, 5*time.Minute, "calls", func() error {
		if done := l.done.Load(); done < goal && !t.Failed() {
			return fmt.Errorf("%d of %d", done, goal)
		}
		return nil
	})
}

func (l *cloudwegoLoad) stop() {
	l.cancel()
	l.all.Wait()
}

// check ends the load. It fails unless each call that succeeded was carried out once, and each that
// failed at most once. At most failures may have failed.
func (l *cloudwegoLoad) check(t *testing.T, servers []*cloudwegoServer, failures int) {
	t.Helper()
	l.stop()
	times, failed := did(t, servers), 0
	for id, err := range l.sent {
		if err != nil {
			failed++
			t.Logf("%s: %v", id, err)
		}
		if n := times[id]; n > 1 || n == 0 && err == nil {
			t.Errorf("call %s was carried out %d times, %v", id, n, err)
		}
	}
	if failed > failures || len(l.sent) == 0 {
		t.Errorf("%d calls of %d failed, at most %d may", failed, len(l.sent), failures)
	}
	t.Logf("%d calls, %d of %d that may be carried out once failed", l.done.Load(), failed, len(l.sent))
}

// checkStops stops each server in its own way under load, and starts it again. At most one call of each
// client fails by each stop, and only those that may not be carried out twice.
func checkStops(t *testing.T, load *cloudwegoLoad, apps []*cloudwegoServer) {
	t.Helper()
	rounds := 1
	if *cloudwegoLong {
		rounds = 10
	}
	for range rounds {
		for _, app := range apps {
			load.more(t, 200)
			app.stop()
			load.more(t, 200)
			app.start()
		}
	}
	load.more(t, 200)
	load.check(t, apps, rounds*len(apps)*loadClients)
}

// replicas are three servers, of which the last is slow.
func replicas(t *testing.T, what string) (apps []*cloudwegoServer, endpoints []string) {
	for _, flags := range [][]string{nil, nil, {"-delay", "300ms"}} {
		apps = append(apps, startCloudwego(t, what, flags...))
		endpoints = append(endpoints, apps[len(apps)-1].addr)
	}
	return apps, endpoints
}

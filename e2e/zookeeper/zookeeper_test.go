package zookeeper

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// fault is what happens to ZooKeeper under load.
type fault struct {
	name   string
	happen func(*server)
}

// faults returns all faults, or the first one for a short test.
func faults() []fault {
	if testing.Short() {
		return allFaults[:1]
	}
	return allFaults
}

var allFaults = []fault{
	{"restarted", func(s *server) { s.kill(); s.start() }},
	{"down for longer than the sessions", func(s *server) {
		s.kill()
		<-time.After(3 * sessionTime * time.Millisecond)
		s.start()
	}},
	{"paused for longer than the sessions", (*server).pause},
	{"without its data", (*server).wipe},
}

// hash calls a provider over HTTP.
func hash(egress string) error {
	resp, err := http.Post("http://"+egress+"/"+sampler+"/hash", "application/json", strings.NewReader(`{"types": ["java.lang.String"], "args": ["abc"]}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "96354") {
		err = fmt.Errorf("%s %s: %.200s", resp.Status, resp.Header.Get("x-remora-error"), body)
	}
	return err
}

// consumer starts a sidecar whose endpoints are in ZooKeeper.
func (s *server) consumer(more string) (p *harness.Process, egress string) {
	s.t.Helper()
	egress = harness.FreeAddrs(s.t, 1)[0]
	p = harness.Start(s.t, fmt.Sprintf(`
registry: {zookeeper: {servers: [%q], session_timeout: %dms, services: [{service: sampler, interface: %s%s}]}}
listeners: [{name: egress, address: %q, protocol: http, service: sampler}]
services: {sampler: {discover: zookeeper, protocol: dubbo, idempotent: true, retry: {attempts: 2}}}`, s.addr, sessionTime, sampler, more, egress))
	return p, egress
}

// awaitEndpoints waits until a sidecar has exactly the endpoints at these hosts, as ZooKeeper has them.
func awaitEndpoints(t *testing.T, p *harness.Process, hosts ...string) {
	t.Helper()
	body := ""
	eventually.Within(t, 3*time.Minute, "endpoints "+strings.Join(hosts, " "), func() error {
		_, body = p.Get("/endpoints")
		n := strings.Count(body, `"address": "`)
		for _, h := range hosts {
			if !strings.Contains(body, `"`+h+":"+dubboPort+`"`) {
				n = -1
			}
		}
		if n != len(hosts) || !p.Stats().Registry.Connected {
			return fmt.Errorf("it has %s", body)
		}
		return nil
	})
}

// TestProviders: a sidecar finds providers of unmodified Dubbo, at both levels, and no call fails, whatever happens to
// ZooKeeper.
func TestProviders(t *testing.T) {
	s := startServer(t)
	first := s.startProvider("10.222.0.1", "")
	s.startProvider("10.222.0.2", "")
	s.awaitChildren(providersPath, 4)
	p, egress := s.consumer("")
	p.Ready()
	awaitEndpoints(t, p, "10.222.0.1", "10.222.0.2")
	for _, f := range faults() {
		l := harness.StartLoad(t, 4, func() error { return hash(egress) })
		f.happen(s)
		s.makeNodes(providersPath)
		s.awaitChildren(providersPath, 4)
		awaitEndpoints(t, p, "10.222.0.1", "10.222.0.2")
		l.End("ZooKeeper was " + f.name)
	}
	l := harness.StartLoad(t, 4, func() error { return hash(egress) })
	_ = first.Process.Signal(syscall.SIGTERM)
	awaitEndpoints(t, p, "10.222.0.2")
	s.startProvider("10.222.0.3", "")
	awaitEndpoints(t, p, "10.222.0.2", "10.222.0.3")
	l.End("a provider ends and another one starts")
}

// TestApplicationLevel: a sidecar finds providers that register their application alone, whether their metadata is in
// ZooKeeper or not.
func TestApplicationLevel(t *testing.T) {
	s := startServer(t)
	const instances = "-Ddubbo.application.register-mode=instance"
	s.startProvider("10.222.0.1", "", instances)
	s.startProvider("10.222.0.2", "", instances, "-Ddubbo.application.metadata-type=remote", "-Ddubbo.metadata-report.address=zookeeper://"+s.addr)
	s.awaitChildren("/services/lab-provider", 2)
	if names := s.children(providersPath); len(names) > 0 {
		t.Errorf("records of the interface level: %q", names)
	}
	p, egress := s.consumer("")
	p.Ready()
	awaitEndpoints(t, p, "10.222.0.1", "10.222.0.2")
	other, _ := s.consumer(", version: 9.9.9")
	awaitEndpoints(t, other, "10.222.0.1") // it says in no place that it has not the version
	last := allFaults[2]
	if testing.Short() {
		last = allFaults[0]
	}
	l := harness.StartLoad(t, 4, func() error { return hash(egress) })
	last.happen(s)
	s.awaitChildren("/services/lab-provider", 2)
	awaitEndpoints(t, p, "10.222.0.1", "10.222.0.2")
	l.End("ZooKeeper was " + last.name)
}

// TestConsumers: an unmodified consumer of Dubbo finds sidecars that have registered, and no call fails, whatever happens to
// ZooKeeper, or while a sidecar drains.
func TestConsumers(t *testing.T) {
	s := startServer(t)
	s.startProvider("10.222.0.1", "N/A")
	harness.AwaitListener(t, "the provider", "10.222.0.1:"+dubboPort)
	sidecar := func(host string) *harness.Process {
		p := harness.Start(t, fmt.Sprintf(`
node: {id: %q}
registry: {zookeeper: {servers: [%q], session_timeout: %dms, services: [{service: sampler, interface: %s}]}}
listeners: [{name: ingress, address: "%s:%s", protocol: dubbo, service: local}]
services: {local: {discover: static, endpoints: ["10.222.0.1:%s"], protocol: dubbo}}
register: [{service: sampler, listener: ingress, advertise: "%s:%s"}]`, host, s.addr, sessionTime, sampler, host, dubboPort, dubboPort, host, dubboPort))
		p.Ready()
		return p
	}
	one, two := sidecar("10.222.0.11"), sidecar("10.222.0.12")
	s.awaitChildren(providersPath, 2)
	calls := func() int {
		return one.Metric(answered) + two.Metric(answered)
	}
	start := func() *javaLoad {
		before := calls()
		l := s.startJava("load", "4")
		eventually.Within(t, 2*time.Minute, "calls", func() error {
			if n := calls(); n < before+10 {
				return fmt.Errorf("%d after %d", n, before)
			}
			return nil
		})
		return l
	}
	for _, f := range faults() {
		l := start()
		f.happen(s)
		s.awaitChildren(providersPath, 2)
		l.end("ZooKeeper was " + f.name)
	}
	l := start()
	one.Signal(syscall.SIGTERM)
	one.Ends()
	s.awaitChildren(providersPath, 1)
	l.end("a sidecar drained")
}

// answered counts the calls of a sidecar that a provider has answered.
const answered = `remora_requests_total{outcome="2xx",service="local"}`

// javaLoad is a consumer of Dubbo that sends calls until its end.
type javaLoad struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	output bytes.Buffer
	errors bytes.Buffer
}

// startJava starts a consumer that finds its providers in ZooKeeper.
func (s *server) startJava(args ...string) *javaLoad {
	s.t.Helper()
	l := &javaLoad{t: s.t, cmd: s.java("", append([]string{"-Dhost=10.222.0.21", "dev.remora.lab.Consumer", "0"}, args...)...)}
	var err error
	if l.stdin, err = l.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	l.cmd.Stdout, l.cmd.Stderr = &l.output, &l.errors
	if err := l.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.cmd.Process.Kill(); _ = l.cmd.Wait() })
	return l
}

// end ends the calls, and checks that all were right.
func (l *javaLoad) end(what string) {
	l.t.Helper()
	<-time.After(2 * time.Second) // of calls after the fault
	l.stdin.Close()
	err := l.cmd.Wait()
	counts := strings.TrimSpace(l.output.String())
	l.t.Logf("%s: %s", what, counts)
	if err != nil || !strings.Contains(counts, "right=") || strings.Contains(counts, "failed") || !strings.Contains(counts, "wrong=0") || strings.Contains(counts, "right=0") {
		text := l.errors.String()
		l.t.Errorf("%s: %v %s\n%s", what, err, counts, text[max(0, len(text)-3000):])
	}
}

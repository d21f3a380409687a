//go:build linux

package intercept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

const (
	proxyUID, appUID, nobody = "61001", "61002", "61003"

	near4, far4 = "10.77.0.1", "10.77.0.2"
	near6, far6 = "fd77::1", "fd77::2"

	admin = "http://127.0.0.1:9901"
)

// A Java that has just started may take long from its connection to its request, and
// connections whose server speaks first wait as long.
const config = `
node: {id: intercept}
loops: 2
log: {level: warn, format: text}
admin: {address: "127.0.0.1:9901"}
timeouts: {detect: 20s}
listeners:
- {name: egress4, address: "127.0.0.1:15001", protocol: http, transparent: true}
- {name: egress6, address: "[::1]:15001", protocol: http, transparent: true}
routes:
- {match: {host: compute4}, service: compute4}
- {match: {host: compute6}, service: compute6}
services:
  compute4:
    discover: static
    endpoints: ["` + far4 + `:9001", "` + far4 + `:9002", "` + far4 + `:9003"]
    protocol: http
    connect_timeout: 15s
    timeout: 60s
    hedge: {mode: "on", delay: 20ms, budget: 0.5}
  compute6:
    discover: static
    endpoints: ["[` + far6 + `]:9001", "[` + far6 + `]:9002", "[` + far6 + `]:9003"]
    protocol: http
    connect_timeout: 15s
    timeout: 60s
    hedge: {mode: "on", delay: 20ms, budget: 0.5}
`

const hosts = "127.0.0.1 localhost\n" +
	far4 + " compute4 other4 store4 lines4 greeter4\n" +
	far6 + " compute6 other6 store6 lines6 greeter6\n"

// lab is two namespaces that a veth pair joins, and the processes in them: the sidecar in
// the near one; the servers, with Redis, in the far one.
type lab struct {
	*testing.T
	ctx       context.Context // until a signal asks this process to end
	near, far space
	requests  requests
}

// newLab makes a lab, until the end of the test.
func newLab(t *testing.T) lab {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	t.Cleanup(stop)
	l := lab{T: t, ctx: ctx, near: newSpace("near"), far: newSpace("far")}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []space{l.near, l.far} {
		t.Cleanup(s.remove)
		l.run("ip", "netns", "add", string(s))
		l.run("ip", "-n", string(s), "link", "set", "lo", "up")
	}
	l.run("ip", "link", "add", "veth0", "netns", string(l.near),
		"type", "veth", "peer", "name", "veth0", "netns", string(l.far))
	for s, addresses := range map[space][2]string{l.near: {near4, near6}, l.far: {far4, far6}} {
		l.run("ip", "-n", string(s), "address", "add", addresses[0]+"/24", "dev", "veth0")
		l.run("ip", "-n", string(s), "address", "add", addresses[1]+"/64", "dev", "veth0", "nodad")
		l.run("ip", "-n", string(s), "link", "set", "veth0", "up")
	}
	l.write(filepath.Join(l.near.files(), "hosts"), hosts)
	l.start()
	return l
}

// start starts the sidecar and the servers.
func (l *lab) start() {
	l.Helper()
	l.requests = serve(l.T, l.far)
	l.launch("redis", l.far, func() bool { return strings.Contains(l.try(l.far, "redis-cli", "PING").stdout, "PONG") },
		"redis-server", "--port", "6379", "--bind", "0.0.0.0", "::", "--protected-mode", "no", "--save", "")
	file := filepath.Join(*dir, "remora.yaml")
	l.write(file, config)
	// A process of another user gets no signal of its parent's death without setpriv.
	l.launch("remora", l.near, func() bool { return l.try(l.near, "curl", "--silent", "--fail", admin+"/readyz").code == 0 },
		"setpriv", "--reuid", proxyUID, "--regid", proxyUID, "--clear-groups", "--pdeathsig", "KILL",
		filepath.Join(*dir, "bin", "remora"), "run", "-c", file)
}

// write writes a file, and makes its folder, for all users to read.
func (l lab) write(file, text string) {
	l.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		l.Fatal(err)
	}
}

// launch starts a process in a namespace, until the end of the test, and waits until it is
// ready. Its output goes to NAME.log.
func (l lab) launch(name string, where space, ready func() bool, argv ...string) {
	l.Helper()
	log, err := os.Create(filepath.Join(*dir, name+".log"))
	if err != nil {
		l.Fatal(err)
	}
	cmd := command(context.WithoutCancel(l.ctx), where.argv(argv)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	l.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		log.Close()
		if text, _ := os.ReadFile(log.Name()); l.Failed() {
			l.Logf("the log of %s ends:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	eventually.True(l, name, func() bool {
		select {
		case <-ended:
			l.Fatalf("%s: %s", name, cmd.ProcessState)
		default:
		}
		return ready()
	})
}

// argv is the command line that runs argv inside.
func (s space) argv(argv []string) []string {
	return append([]string{"ip", "netns", "exec", string(s)}, argv...)
}

// command returns a command that the kernel kills if this process is killed.
func command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// outcome is what a program printed, and its exit code.
type outcome struct {
	stdout, stderr string
	code           int
}

// patience bounds the time of a program, on a busy machine. No result depends on it.
const patience = 2 * time.Minute

// execute runs a program to its end. The error is nil whatever its exit code.
func execute(ctx context.Context, argv ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := command(ctx, argv...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", cmd, context.Cause(ctx))
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, err
}

// run runs a program that must succeed, and returns its output.
func (l lab) run(argv ...string) string {
	l.Helper()
	ran, err := execute(l.ctx, argv...)
	if err == nil && ran.code != 0 {
		err = fmt.Errorf("%q: exit %d: %s", argv, ran.code, ran.stderr)
	}
	if err != nil {
		l.Fatal(err)
	}
	return ran.stdout
}

// try runs a program in a namespace.
func (l lab) try(where space, argv ...string) outcome {
	l.Helper()
	ran, err := execute(l.ctx, where.argv(argv)...)
	if err != nil {
		l.Fatal(err)
	}
	return ran
}

// intercept runs intercept.sh, which must succeed.
func (l lab) intercept(args ...string) {
	l.Helper()
	l.run(l.near.argv(append([]string{script}, args...))...)
}

// get returns the body of a response to curl, which runs behind the command line before.
func (l lab) get(url string, before ...string) string {
	l.Helper()
	return l.try(l.near, append(before, "curl", "--silent", "--max-time", "60", url)...).stdout
}

var noRule = regexp.MustCompile(`#.*\n|\[\d+:\d+\]`)

// rules returns what the nat tables hold, without comments and counters.
func (l lab) rules() (all string) {
	l.Helper()
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		all += l.run(l.near.argv([]string{save, "-t", "nat"})...)
	}
	return noRule.ReplaceAllString(all, "")
}

// metric returns a metric of the sidecar; 0 if it is not there.
func (l lab) metric(name string) (value float64) {
	l.Helper()
	var ran outcome
	eventually.True(l, "the metrics", func() bool { // a loop without processor time makes it a 503
		ran = l.try(l.near, "curl", "--silent", "--fail", "--max-time", "60", admin+"/metrics")
		return ran.code == 0
	})
	for line := range strings.Lines(ran.stdout) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			var err error
			if value, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
				l.Fatal(err)
			}
		}
	}
	return value
}

// passed returns how many connections have passed through the sidecar.
func (l lab) passed() float64 {
	l.Helper()
	return l.metric(`remora_stream_departures_total{kind="pass"}`)
}

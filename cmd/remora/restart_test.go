package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
)

// replace starts a successor of p, and waits until it serves.
func (p *process) replace(flags ...string) *process {
	p.t.Helper()
	restarts := p.metric("remora_hot_restarts")
	q := p.again(flags...)
	q.serves(restarts + 1)
	p.says(p.t, "msg=replaced") // the successor serves before p hears of it
	return q
}

// successorPath returns the path at which p accepts successors.
func (p *process) successorPath() string {
	p.t.Helper()
	cfg, err := config.Load(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	return successorPath(os.Getenv("RUNTIME_DIRECTORY"), p.file, cfg)
}

// serves waits for the admin API of the process that is the result of restarts hot
// restarts.
func (p *process) serves(restarts int) {
	p.t.Helper()
	eventually.Nil(p.t, "the successor to serve", func() error {
		select {
		case <-p.exited:
			p.t.Fatal("the process has ended")
		default:
		}
		if n := p.metric("remora_hot_restarts"); n != restarts {
			return fmt.Errorf("%d hot restarts", n)
		}
		return nil
	})
	p.ready()
}

// keptAlive is a connection of a client that sends several requests.
type keptAlive struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func keepAlive(t *testing.T, addr string) *keptAlive {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &keptAlive{t, c, bufio.NewReader(c)}
}

func (c *keptAlive) send(path string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", path); err != nil {
		c.t.Fatal(err)
	}
}

// readResponse reads a response, and reports whether the connection closes after it.
func (c *keptAlive) readResponse() (last bool) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "POST hi" {
		c.t.Errorf("response %d %q, %v", resp.StatusCode, b, err)
	}
	return resp.Close
}

// untilLast sends requests until a response closes the connection, since its loop learns of a
// drain at any time.
func (c *keptAlive) untilLast() {
	c.t.Helper()
	eventually.Nil(c.t, "the old process to close a connection", func() error {
		c.send("/")
		if !c.readResponse() {
			return errors.New("it keeps the connection")
		}
		return nil
	})
}

// TestHotRestart: the predecessor serves its connections until their next response, and
// its successor serves new ones at each address. The test restarts twice.
func TestHotRestart(t *testing.T) {
	a := newApp(t)
	egress := freeAddrs(t, 1)[0]
	old := startRemora(t, oneApp(egress, a.addr, ""))
	old.ready()
	for range 2 {
		idle, fresh, busy := keepAlive(t, egress), keepAlive(t, egress), keepAlive(t, egress)
		idle.send("/")
		if idle.readResponse() {
			t.Fatal("a connection closes before the restart")
		}
		busy.send("/slow")
		receive(t, "the request to arrive", a.arrived)
		eventually.Nil(t, "the connections to be there", func() error {
			if n := old.metric(`remora_reactor_connections{direction="in"}`); n != 3 {
				return fmt.Errorf("%d connections", n)
			}
			return nil
		})

		next := old.replace()
		after := keepAlive(t, egress)
		after.send("/")
		if after.readResponse() {
			t.Error("the successor closes a connection")
		}
		after.Close()
		idle.untilLast()
		fresh.untilLast()
		a.release <- struct{}{}
		if !busy.readResponse() {
			busy.untilLast()
		}
		if code := old.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		old = next
	}
	old.signal(syscall.SIGTERM)
	if code := old.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(old.successorPath()); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// TestHotRestartFails: if a successor can't serve, the process goes on as before.
func TestHotRestartFails(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newApp(t)
	addrs := freeAddrs(t, 2)
	good := oneApp(addrs[0], a.addr, "")
	p := startRemora(t, good)
	p.ready()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ name, yaml, says string }{
		{"invalid", good + "\nnonsense: 1", "nonsense"},
		{"an address is taken", strings.Replace(good, "listeners: [", fmt.Sprintf(
			"listeners: [{name: more, address: %q, protocol: http}, ", taken.Addr()), 1), "listeners[0].address"},
		{"endpoints unknown", strings.Replace(good, "services: {", "services: {far: {discover: etcd}, ", 1) +
			fmt.Sprintf("\nregistry: {etcd: {endpoints: [%q]}}", addrs[1]), "no endpoints known"},
	} {
		p.write(c.yaml)
		q := p.again()
		if code := q.exitCode(); code != exitFailed || !strings.Contains(q.output.String(), c.says) {
			t.Errorf("%s: exit code %d", c.name, code)
		}
		client := keepAlive(t, addrs[0])
		client.send("/")
		if client.readResponse() {
			t.Errorf("%s: the process closes a connection", c.name)
		}
		client.Close()
		p.ready()
	}
	p.write(good)
	p.replace()
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestRestartBySignal: SIGUSR2 runs the program that is now at the path of the process.
// The service manager is notified of each step.
func TestRestartBySignal(t *testing.T) {
	dir := socketDir(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	notified := func() string {
		t.Helper()
		b := make([]byte, 256)
		_ = manager.SetReadDeadline(time.Now().Add(patience))
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	program := filepath.Join(dir, "remora")
	install := func() {
		t.Helper()
		b, err := os.ReadFile(binary)
		if err == nil {
			err = os.WriteFile(program+".new", b, 0o700)
		}
		if err == nil {
			err = os.Rename(program+".new", program)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install()
	a := newApp(t)
	egress := freeAddrs(t, 1)[0]
	template := &process{t: t, admin: freeAddrs(t, 1)[0], file: filepath.Join(dir, "remora.yaml")}
	template.write(oneApp(egress, a.addr, ""))
	cmd := exec.Command(program, "run", "-c", template.file)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+manager.LocalAddr().String())
	p := template.launch(cmd)
	if got := notified(); got != "READY=1" {
		t.Errorf("notified of %q at the start", got)
	}
	p.ready()

	install()
	p.signal(syscall.SIGUSR2)
	var pid int
	for range 2 { // from two processes, in either order
		if main, ok := strings.CutPrefix(notified(), "MAINPID="); ok {
			pid, _ = strconv.Atoi(main)
		}
	}
	if pid == 0 || pid == p.cmd.Process.Pid {
		t.Fatalf("the main process is %d", pid)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(program); err != nil || !os.SameFile(running, now) {
		t.Errorf("the successor runs the old program, %v", err)
	}
	template.ready()
	if n := p.metric("remora_hot_restarts"); n != 1 {
		t.Errorf("%d hot restarts", n)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := notified(); got != "STOPPING=1" {
		t.Errorf("notified of %q at the end", got)
	}
	refused(t, p.admin)
}

// TestSuccessorPath: the path is the same for a process and its successor, and different for
// any other process.
func TestSuccessorPath(t *testing.T) {
	load := func(id, admin string) *config.Config {
		cfg := config.Default()
		cfg.Node.ID, cfg.Admin.Address = id, admin
		return cfg
	}
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	one := successorPath("/run/remora", "a.yaml", load("n1", "127.0.0.1:1"))
	if same := successorPath("/run/remora", filepath.Join(dir, "a.yaml"), load("n1", "127.0.0.1:1")); same != one {
		t.Errorf("%s and %s", one, same)
	}
	for _, other := range []string{
		successorPath("/run/remora", "b.yaml", load("n1", "127.0.0.1:1")),
		successorPath("/run/remora", "a.yaml", load("n2", "127.0.0.1:1")),
		successorPath("/run/remora", "a.yaml", load("n1", "127.0.0.1:2")),
	} {
		if other == one {
			t.Errorf("two processes have the path %s", one)
		}
	}
	if none := successorPath("", "a.yaml", load("n1", "")); none != "" {
		t.Errorf("the path is %s without a directory", none)
	}
}

// TestAdminSockets: the admin API of a successor is at all addresses that its own covers, also where the
// predecessor, whose host name led elsewhere, had a socket. Its own successor takes over all sockets.
func TestAdminSockets(t *testing.T) {
	// An ephemeral port may be that of a connection, and then it is not free at 0.0.0.0.
	narrow, err := net.Listen("tcp", freeAddrs(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer narrow.Close()
	_, port, _ := net.SplitHostPort(narrow.Addr().String())
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p := &process{t: t, file: filepath.Join(t.TempDir(), "remora.yaml"), admin: "0.0.0.0:" + port}
	p.write("")
	predecessor, err := handover.Listen(p.successorPath())
	if err != nil {
		t.Fatal(err)
	}
	defer predecessor.Close()
	p = p.again()
	conn, err := predecessor.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	offer := handover.Offer{Sockets: []string{p.admin}}
	if err := errors.Join(conn.Offer(offer, map[string]syscall.Conn{p.admin: narrow.(syscall.Conn)}), conn.Hear(handover.Ready),
		conn.Say(handover.Released), conn.Hear(handover.Serving)); err != nil {
		t.Fatal(err)
	}
	predecessor.Leave()
	narrow.Close()
	conn.Close()
	for restarts := range 2 {
		if restarts > 0 {
			old := p
			p = p.again()
			old.says(t, "msg=replaced")
		}
		for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
			p.admin = net.JoinHostPort(host, port)
			p.await("/healthz", http.StatusOK, "")
		}
	}
}

// TestHotRestartBusy: a successor that connects during a reload is refused, and gets the
// reason.
func TestHotRestartBusy(t *testing.T) {
	path := filepath.Join(socketDir(t), "run", "remora.sock")
	listener, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{log: slog.New(slog.DiscardHandler), hotRestart: hotRestart{successors: listener}}
	s.changing.Lock() // like a reload
	over := make(chan struct{})
	go func() { defer close(over); s.acceptSuccessors() }()
	_, err = inherit(config.Default(), path, s.log)
	if err == nil || !strings.Contains(err.Error(), errBusy.Error()) {
		t.Errorf("the successor ends with %v", err)
	}
	s.closeSuccessors()
	receive(t, "the listener to close", over)
}

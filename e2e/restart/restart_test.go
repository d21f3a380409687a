package restart

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/handover"
)

// keptAlive is a connection of a client that sends several requests.
type keptAlive struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func keepAlive(t *testing.T, addr string) *keptAlive {
	t.Helper()
	c := must.Dial(t, "tcp", addr)
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
	_ = c.SetReadDeadline(time.Now().Add(harness.Patience))
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
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	old := harness.Start(t, harness.OneApp(egress, a.Addr, ""))
	old.Ready()
	for range 2 {
		idle, fresh, busy := keepAlive(t, egress), keepAlive(t, egress), keepAlive(t, egress)
		idle.send("/")
		if idle.readResponse() {
			t.Fatal("a connection closes before the restart")
		}
		busy.send("/slow")
		harness.Receive(t, "the request to arrive", a.Arrived)
		eventually.Nil(t, "the connections to be there", func() error {
			if n := old.Metric(`remora_reactor_connections{direction="in"}`); n != 3 {
				return fmt.Errorf("%d connections", n)
			}
			return nil
		})

		next := old.Replace()
		after := keepAlive(t, egress)
		after.send("/")
		if after.readResponse() {
			t.Error("the successor closes a connection")
		}
		after.Close()
		idle.untilLast()
		fresh.untilLast()
		a.Release <- struct{}{}
		if !busy.readResponse() {
			busy.untilLast()
		}
		old.Ends()
		old = next
	}
	old.Signal(syscall.SIGTERM)
	old.Ends()
	if _, err := os.Stat(old.SuccessorPath()); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// TestHotRestartFails: if a successor can't serve, the process goes on as before.
func TestHotRestartFails(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 2)
	good := harness.OneApp(addrs[0], a.Addr, "")
	p := harness.Start(t, good)
	p.Ready()
	taken := must.Listen(t)
	for _, c := range []struct{ name, yaml, says string }{
		{"invalid", good + "\nnonsense: 1", "nonsense"},
		{"an address is taken", strings.Replace(good, "listeners: [", fmt.Sprintf(
			"listeners: [{name: more, address: %q, protocol: http}, ", taken.Addr()), 1), "listeners[0].address"},
		{"endpoints unknown", strings.Replace(good, "services: {", "services: {far: {discover: etcd}, ", 1) +
			fmt.Sprintf("\nregistry: {etcd: {endpoints: [%q]}}", addrs[1]), "no endpoints known"},
	} {
		p.Write(c.yaml)
		q := p.Again()
		if code := q.ExitCode(); code != harness.ExitFailed || !strings.Contains(q.Output.String(), c.says) {
			t.Errorf("%s: exit code %d", c.name, code)
		}
		client := keepAlive(t, addrs[0])
		client.send("/")
		if client.readResponse() {
			t.Errorf("%s: the process closes a connection", c.name)
		}
		client.Close()
		p.Ready()
	}
	p.Write(good)
	p.Replace()
	p.Ends()
}

// TestRestartBySignal: SIGUSR2 runs the program that is now at the path of the process.
// The service manager is notified of each step.
func TestRestartBySignal(t *testing.T) {
	dir := harness.SocketDir(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	notified := func() string {
		t.Helper()
		b := make([]byte, 256)
		_ = manager.SetReadDeadline(time.Now().Add(harness.Patience))
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	program := filepath.Join(dir, "remora")
	install := func() {
		t.Helper()
		b, err := os.ReadFile(harness.Binary)
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
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	template := &harness.Process{T: t, Admin: harness.FreeAddrs(t, 1)[0], File: filepath.Join(dir, "remora.yaml")}
	template.Write(harness.OneApp(egress, a.Addr, ""))
	cmd := exec.Command(program, "run", "-c", template.File)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+manager.LocalAddr().String())
	p := template.Launch(cmd)
	if got := notified(); got != "READY=1" {
		t.Errorf("notified of %q at the start", got)
	}
	p.Ready()

	install()
	p.Signal(syscall.SIGUSR2)
	var pid int
	for range 2 { // from two processes, in either order
		if main, ok := strings.CutPrefix(notified(), "MAINPID="); ok {
			pid, _ = strconv.Atoi(main)
		}
	}
	if pid == 0 || pid == p.Cmd.Process.Pid {
		t.Fatalf("the main process is %d", pid)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	p.Ends()
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(program); err != nil || !os.SameFile(running, now) {
		t.Errorf("the successor runs the old program, %v", err)
	}
	template.Ready()
	p.Counts("remora_hot_restarts", 1)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := notified(); got != "STOPPING=1" {
		t.Errorf("notified of %q at the end", got)
	}
	harness.Refused(t, p.Admin)
}

// TestAdminSockets: the admin API of a successor is at all addresses that its own covers, also where the
// predecessor, whose host name led elsewhere, had a socket. Its own successor takes over all sockets.
func TestAdminSockets(t *testing.T) {
	// An ephemeral port may be that of a connection, and then it is not free at 0.0.0.0.
	narrow := must.ListenOn(t, "tcp", harness.FreeAddrs(t, 1)[0])
	_, port, _ := net.SplitHostPort(narrow.Addr().String())
	t.Setenv("REMORA_TEST_TOKEN", "secret")
	p := &harness.Process{T: t, File: filepath.Join(t.TempDir(), "remora.yaml"), Admin: "0.0.0.0:" + port}
	p.Write("")
	predecessor, err := handover.Listen(p.SuccessorPath())
	if err != nil {
		t.Fatal(err)
	}
	defer predecessor.Close()
	p = p.Again()
	conn, err := predecessor.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	offer := handover.Offer{Sockets: []string{p.Admin}}
	if err := errors.Join(conn.Offer(offer, map[string]syscall.Conn{p.Admin: narrow.(syscall.Conn)}), conn.Hear(handover.Ready),
		conn.Say(handover.Released), conn.Hear(handover.Serving)); err != nil {
		t.Fatal(err)
	}
	predecessor.Yield()
	narrow.Close()
	conn.Close()
	for restarts := range 2 {
		if restarts > 0 {
			old := p
			p = p.Again()
			old.Says(t, "msg=replaced")
		}
		for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
			p.Admin = net.JoinHostPort(host, port)
			p.Await("/healthz", http.StatusOK, "")
		}
	}
}

// Package zookeeper runs sidecars, and consumers and providers of real Apache Dubbo, around a real ZooKeeper.
// scripts/zookeeper-source.sh brings all of these, and a network namespace: Dubbo does not register a loopback address.
package zookeeper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Paths from the environment.
const (
	serverVariable = "ZOOKEEPER_CLASSPATH" // of a ZooKeeper server
	dubboVariable  = "DUBBO_CLASSPATH"     // of lab/java
)

// sessionTime is that of all sessions, in ms. The pauses of the server are longer.
const sessionTime = 4000

// server is a ZooKeeper.
type server struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
}

// startServer starts a ZooKeeper for a test with Dubbo.
func startServer(t *testing.T) *server {
	t.Helper()
	if os.Getenv(dubboVariable) == "" {
		t.Skip("needs Dubbo: see scripts/zookeeper-source.sh")
	}
	s := newServer(t, harness.FreeAddrs(t, 1)[0], "")
	s.start()
	return s
}

// newServer returns a ZooKeeper that does not run yet. settings are more lines of its configuration.
func newServer(t *testing.T, addr, settings string) *server {
	t.Helper()
	if os.Getenv(serverVariable) == "" {
		t.Skip("needs ZooKeeper: see scripts/zookeeper-source.sh")
	}
	s := &server{t: t, dir: t.TempDir(), addr: addr}
	host, port, _ := strings.Cut(s.addr, ":")
	must.WriteFile(t, s.file("zoo.cfg"), fmt.Sprintf("tickTime=500\ndataDir=%s\nclientPort=%s\nclientPortAddress=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n%s",
		s.file("data"), port, host, settings))
	t.Cleanup(func() {
		s.kill()
		if said, _ := os.ReadFile(s.file("log")); t.Failed() {
			t.Logf("the end of ZooKeeper's log: %s", said[max(0, len(said)-4000):])
		}
	})
	return s
}

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *server) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("java", "-Xmx96m", "-cp", os.Getenv(serverVariable), "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.file("zoo.cfg"))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	harness.AwaitListener(s.t, "ZooKeeper", s.addr)
}

// kill ends the server without a warning.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// pause stops the server for longer than all sessions live.
func (s *server) pause() {
	s.t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			s.t.Fatal(err)
		}
		if sig == syscall.SIGSTOP {
			<-time.After(3 * sessionTime * time.Millisecond)
		}
	}
}

// wipe replaces the server by one without data.
func (s *server) wipe() {
	s.t.Helper()
	s.kill()
	if err := os.RemoveAll(s.file("data")); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// ask calls do with a session.
func (s *server) ask(do func(context.Context, *session.Session)) {
	connected := make(once, 1)
	raw := session.New(session.Options{Servers: []string{s.addr}, Timeout: sessionTime * time.Millisecond, Handler: connected})
	raw.Start()
	defer raw.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	select {
	case <-connected:
		do(ctx, raw)
	case <-ctx.Done():
	}
}

// children returns the names of a node's children.
func (s *server) children(path string) (names []string) {
	s.ask(func(ctx context.Context, raw *session.Session) { names, _ = raw.Children(ctx, path, false) })
	return names
}

// makeNodes makes the nodes of a path, as the registration of a sidecar does. Dubbo 3.3.5 makes a node once in the life of a
// process, and then can't register below it if it has gone.
func (s *server) makeNodes(path string) {
	s.ask(func(ctx context.Context, raw *session.Session) {
		for i := 1; i <= len(path); i++ {
			if i == len(path) || path[i] == '/' {
				_ = raw.Create(ctx, path[:i], nil, false)
			}
		}
	})
}

// once is a session.Handler that receives after the first connection.
type once chan struct{}

func (o once) Connected(int64, bool) {
	select {
	case o <- struct{}{}:
	default:
	}
}
func (once) Lost(error)     {}
func (once) Changed(string) {}

// awaitChildren waits until a node has n children. Clients that are in Java may take a minute to notice that a server has lost
// its data.
func (s *server) awaitChildren(path string, n int) {
	s.t.Helper()
	var names []string
	eventually.Within(s.t, 4*time.Minute, fmt.Sprintf("%d children of %s", n, path), func() error {
		if names = s.children(path); len(names) != n {
			return fmt.Errorf("%d: %.300q", len(names), names)
		}
		return nil
	})
}

// java returns a program of lab/java. The registry of Dubbo is the server, unless registry is "N/A".
func (s *server) java(registry string, args ...string) *exec.Cmd {
	if registry == "" {
		registry = fmt.Sprintf("zookeeper://%s?session=%d", s.addr, sessionTime)
	}
	return exec.Command("java", append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", os.Getenv(dubboVariable), "-Dregistry=" + registry}, args...)...)
}

const (
	sampler       = "dev.remora.lab.Sampler"
	providersPath = "/dubbo/" + sampler + "/providers"
	dubboPort     = "20880"
)

// startProvider starts a provider of Sampler at an address of its own, which is one of two records: the interface has another
// one in a group.
func (s *server) startProvider(host, registry string, options ...string) *exec.Cmd {
	s.t.Helper()
	cmd := s.java(registry, append(append([]string{"-Dhost=" + host}, options...), "dev.remora.lab.Provider", dubboPort)...)
	harness.StartProgram(s.t, cmd)
	return cmd
}

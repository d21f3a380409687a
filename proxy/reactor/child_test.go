package reactor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// childVariable marks the process that runs out of descriptors.
const childVariable = "REACTOR_TEST_CHILD"

// childMain runs the part of a test that changes the limits of its process, and reports
// whether this process is the child.
func childMain() bool {
	if os.Getenv(childVariable) == "" {
		return false
	}
	if err := starve(); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("survived")
	return true
}

// TestOutOfDescriptors: if accept fails for lack of descriptors, the reactor backs off,
// serves open connections, and accepts again later.
func TestOutOfDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("survived")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func starve() error {
	e, err := Start(Options{Engine: environmentEngine(), Loops: 1, MaxConnections: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	l, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(loop.Loop, string) loop.Receiver { return echo() })
	if err != nil {
		return err
	}
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	if err := roundTrip(first); err != nil {
		return err
	}
	// The kernel completes connections before they are accepted, so the peers are opened
	// first, and then the limit is lowered to the descriptors in use.
	low := unix.Rlimit{Cur: 4, Max: 4096}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		return err
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	for deadline := time.Now().Add(waitLimit); e.Stats().AcceptErrors < 3; {
		if time.Now().After(deadline) {
			return fmt.Errorf("accept did not fail: %+v", e.Stats())
		}
		if err := roundTrip(first); err != nil {
			return fmt.Errorf("an open connection fails: %w", err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		return err
	}
	// The connection in the backlog is served now.
	b := []byte("late")
	if _, err := unix.Write(fd, b); err != nil {
		return err
	}
	if n, err := unix.Read(fd, b); err != nil || string(b[:n]) != "late" {
		return fmt.Errorf("the waiting connection got %q, %v", b[:n], err)
	}
	first.Close()
	unix.Close(fd)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return e.Stop(ctx)
}

func roundTrip(c net.Conn) error {
	b := []byte("x")
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := c.Read(b)
	return err
}

package harness

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// StartProgram starts another program, and ends it by SIGTERM at the end of the test. If the test fails, its log gets the
// output of the program.
func StartProgram(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killed := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		killed.Stop()
		if said, _ := os.ReadFile(output.Name()); t.Failed() {
			t.Logf("%s: %s", cmd.Path, said)
		}
	})
}

// AwaitListener waits until program accepts connections at addr.
func AwaitListener(t *testing.T, program, addr string) {
	t.Helper()
	eventually.Nil(t, program+" to listen", func() error {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err
	})
}

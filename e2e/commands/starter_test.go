package commands

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestRunWithoutFile: flags alone start a sidecar in front of two applications. It has no file to reload.
func TestRunWithoutFile(t *testing.T) {
	a, b, listen := (&harness.CheckedApp{App: "a"}).Start(t), (&harness.CheckedApp{App: "b"}).Start(t), harness.FreeAddrs(t, 1)[0]
	p := harness.NewProcess(t, "")
	args := []string{"run", "--listen", listen, "--to", a, "--to", b, "--admin", p.Admin}
	p = p.Launch(exec.Command(harness.Binary, args...))
	p.Ready()
	harness.ServedByAll(t, "http://"+listen+"/", "ab")
	log := fmt.Sprintf(`msg="no configuration file: all requests go to one service" listen=%s to="[%s %s]" admin=%s`, listen, a, b, p.Admin)
	p.AwaitLog(regexp.QuoteMeta(log), "msg=listening listener=http address="+listen)
	p.Signal(syscall.SIGHUP)
	p.AwaitLog("nothing to reload")

	// The same command again is another sidecar, and does not replace this one.
	other := harness.NewProcess(t, "").Launch(exec.Command(harness.Binary, args...))
	if code := other.ExitCode(); code != harness.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if want := "remora: --admin: can't listen at " + p.Admin + ": bind: address already in use"; !strings.Contains(other.Output.String(), want) {
		t.Errorf("%s, want %s", other.Output, want)
	}
	harness.ServedByAll(t, "http://"+listen+"/", "ab")
	p.Signal(syscall.SIGTERM)
	p.Ends()
}

// TestInit: the file of remora init passes remora check, and serves once it has the application's address.
func TestInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.yaml")
	if code, out := harness.Run("init", file); code != 0 || !strings.HasPrefix(out, file+" written. ") {
		t.Fatalf("exit code %d, %s", code, out)
	}
	if code, out := harness.Run("check", "-c", file); code != 0 {
		t.Errorf("remora check: %s", out)
	}
	if code, out := harness.Run("init", file); code != harness.ExitFailed || out != "remora: "+file+" exists, and is not overwritten; name another file\n" {
		t.Errorf("a second time: exit code %d, %s", code, out)
	}

	text := must.ReadFile(t, file)
	p, listen := harness.NewProcess(t, ""), harness.FreeAddrs(t, 1)[0]
	edited := strings.NewReplacer("127.0.0.1:8080", (&harness.CheckedApp{App: "a"}).Start(t),
		"127.0.0.1:15001", listen, "127.0.0.1:9901", p.Admin).Replace(string(text)) // the last two only because ports here may be taken
	must.WriteFile(t, p.File, edited)
	p = p.Again()
	p.Ready()
	harness.ServedByAll(t, "http://"+listen+"/", "a")
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// servedByAll waits until each of the applications has responded to a request.
func servedByAll(t *testing.T, url, apps string) {
	t.Helper()
	missing := apps
	eventually.Nil(t, "responses of all applications", func() error {
		by, err := servedBy(url)
		if missing = strings.ReplaceAll(missing, by, ""); missing != "" {
			return errors.Join(err, fmt.Errorf("nothing of %s", missing))
		}
		return nil
	})
}

// TestRunWithoutFile: flags alone start a sidecar in front of two applications. It has no file to reload.
func TestRunWithoutFile(t *testing.T) {
	a, b, listen := (&checkedApp{app: "a"}).start(t), (&checkedApp{app: "b"}).start(t), freeAddrs(t, 1)[0]
	p := newProcess(t, "")
	args := []string{"run", "--listen", listen, "--to", a, "--to", b, "--admin", p.admin}
	p = p.launch(exec.Command(binary, args...))
	p.ready()
	servedByAll(t, "http://"+listen+"/", "ab")
	log := fmt.Sprintf(`msg="no configuration file: all requests go to one service" listen=%s to="[%s %s]" admin=%s`, listen, a, b, p.admin)
	if out := p.output.String(); !strings.Contains(out, log) || !strings.Contains(out, "msg=listening listener=http address="+listen) {
		t.Errorf("no line with %s in\n%s", log, out)
	}
	p.signal(syscall.SIGHUP)
	eventually.Nil(t, "the log", func() error {
		if !strings.Contains(p.output.String(), "nothing to reload") {
			return errors.New("no line")
		}
		return nil
	})

	// The same command again is another sidecar, and does not replace this one.
	other := newProcess(t, "").launch(exec.Command(binary, args...))
	if code := other.exitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if want := "remora: --admin: can't listen at " + p.admin + ": bind: address already in use"; !strings.Contains(other.output.String(), want) {
		t.Errorf("%s, want %s", other.output, want)
	}
	servedByAll(t, "http://"+listen+"/", "ab")
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestRunUsage: a command line has a file, or all that takes its place.
func TestRunUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "expected -c FILE, or --listen ADDR and --to ADDR",
		"-c x --admin :1":                        "--admin goes with --listen and --to",
		"-c x --listen :1":                       "--listen and --to take the place of a file",
		"-c x --to a:1":                          "--listen and --to take the place of a file",
		"--listen :1":                            "--listen needs --to ADDR",
		"--to a:1":                               "--to needs --listen ADDR",
		"--listen :1 --to a:1 --watch":           "--watch needs a file",
		"--listen :1 --to a:1 --runtime-dir /x":  "--runtime-dir needs a file",
		"--listen :1 --to a:1 remora.yaml":       "unknown command",
		"--listen :1 --listen :2 --to a:1 --too": "unknown flag",
	} {
		var out bytes.Buffer
		if code := execute(append([]string{"run"}, strings.Fields(args)...), &out, &out); code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("remora run %s: exit code %d, %s, want %s", args, code, &out, want)
		}
	}
	var out bytes.Buffer
	code := execute(strings.Fields("run --listen 1 --to 2 --admin 3"), &out, &out)
	if out := out.String(); code != exitFailed || !strings.HasPrefix(out, "remora: --admin: expected host:port") || strings.Count(out, "\n") != 3 {
		t.Errorf("wrong addresses: exit code %d, %s", code, out)
	}
}

// TestInit: the file of remora init passes remora check, and serves once it has the application's address.
func TestInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.yaml")
	var out bytes.Buffer
	if code := execute([]string{"init", file}, &out, &out); code != 0 || !strings.HasPrefix(out.String(), file+" written. ") {
		t.Fatalf("exit code %d, %s", code, &out)
	}
	out.Reset()
	if code := execute([]string{"check", "-c", file}, &out, &out); code != 0 {
		t.Errorf("remora check: %s", &out)
	}
	out.Reset()
	if code := execute([]string{"init", file}, &out, &out); code != exitFailed || out.String() != "remora: "+file+" exists, and is not overwritten; name another file\n" {
		t.Errorf("a second time: exit code %d, %s", code, &out)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, listen := newProcess(t, ""), freeAddrs(t, 1)[0]
	edited := strings.NewReplacer("127.0.0.1:8080", (&checkedApp{app: "a"}).start(t),
		"127.0.0.1:15001", listen, "127.0.0.1:9901", p.admin).Replace(string(text)) // the last two only because ports here may be taken
	if err := os.WriteFile(p.file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	p = p.again()
	p.ready()
	servedByAll(t, "http://"+listen+"/", "a")
}

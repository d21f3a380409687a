package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

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
	p, listen := harness.NewProcess(t, ""), harness.FreeAddrs(t, 1)[0]
	edited := strings.NewReplacer("127.0.0.1:8080", (&harness.CheckedApp{App: "a"}).Start(t),
		"127.0.0.1:15001", listen, "127.0.0.1:9901", p.Admin).Replace(string(text)) // the last two only because ports here may be taken
	if err := os.WriteFile(p.File, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	p = p.Again()
	p.Ready()
	harness.ServedByAll(t, "http://"+listen+"/", "a")
}

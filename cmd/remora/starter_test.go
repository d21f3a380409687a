package main

import (
	"bytes"
	"strings"
	"testing"
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

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/admin"
)

// hostile are control sequences: a colour, xterm's clipboard (OSC 52), one of C1, a bell.
const hostile = "\x1b[31m \x1b]52;c;aGk=\a \u009b2J \r"

func wantPrintable(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }); i >= 0 {
		t.Errorf("%s has a control character at %d: %q", what, i, text)
	}
}

// TestTopPrintsNoControlSequences: names and addresses come from other machines.
func TestTopPrintsNoControlSequences(t *testing.T) {
	f := second()
	name := "bad" + hostile
	f.now.Node, f.now.Phase, f.now.Version = name, name, name
	for _, s := range []*admin.Stats{f.before, f.now} {
		svc := s.Services["compute"]
		svc.Hedges.Gates[name] += uint64(s.Uptime)
		for i := range svc.Endpoints {
			svc.Endpoints[i].Address = hostile
		}
		s.Services = map[string]admin.ServiceStats{name: svc}
	}
	text := strings.Join(f.lines(200), "\n")
	if !strings.Contains(text, "bad\ufffd[31m") {
		t.Errorf("the names are missing: %q", text)
	}
	wantPrintable(t, "the frame", text)
}

// TestOutputIsPrintable: the errors of a configuration show what it holds.
func TestOutputIsPrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remora.yaml")
	if err := os.WriteFile(file, []byte("listeners: [{name: \"x\\e]52;c;aGk=\\a\", protocol: \"\\e[31m\"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "-c", file}, {"run", hostile}, {"check", "-c", hostile}} {
		var out bytes.Buffer
		if code := execute(args, &out, &out); code == 0 || out.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, out.String())
		}
		wantPrintable(t, strings.Join(args[:1], " "), out.String())
	}
}

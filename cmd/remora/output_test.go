package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/sidecar"
)

// hostile are control sequences: a colour, xterm's clipboard (OSC 52), a bell, two of C1, and a mark that turns
// the direction of text.
const hostile = "\x1b[31m \x1b]52;c;aGk=\a \u009b2J \r \u0085 \u202e"

func wantPrintable(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return !printable.Is(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("%s has a control character at %d: %q", what, i, text)
	}
}

// TestOutputIsPrintable: the errors of a configuration show what it holds.
func TestOutputIsPrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remora.yaml")
	must.WriteFile(t, file, "listeners: [{name: \"x\\e]52;c;aGk=\\a\", protocol: \"\\e[31m\"}]\n")
	for _, args := range [][]string{{"check", "-c", file}, {"run", hostile}, {"check", "-c", hostile}} {
		var out bytes.Buffer
		if code := execute(args, &out, &out); code == 0 || out.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, out.String())
		}
		wantPrintable(t, strings.Join(args[:1], " "), out.String())
	}
}

// TestOwnLogIsPrintable: a line of the sidecar's own log says what peers sent, in either format.
func TestOwnLogIsPrintable(t *testing.T) {
	for _, format := range []string{config.FormatJSON, config.FormatText} {
		var out bytes.Buffer
		log, _, flush := sidecar.NewLog(&config.Log{Level: config.LevelInfo, Format: format}, &out)
		log.With("peer", hostile).Warn("said "+hostile, "path", hostile, hostile, errors.New(hostile))
		flush(t.Context())
		if wantPrintable(t, format, out.String()); strings.Count(out.String(), "\n") != 1 || strings.Count(out.String(), `\u009b`) != 5 {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}

// TestInjectKeepsBytes: manifests that no terminal shows come out as they are, whatever characters they have.
func TestInjectKeepsBytes(t *testing.T) {
	text := "apiVersion: v1\r\nkind: ConfigMap # \u00a0\u202e\ufeff\r\n"
	file := filepath.Join(t.TempDir(), "m.yaml")
	must.WriteFile(t, file, text)
	var out, said bytes.Buffer
	if code := execute([]string{"inject", file}, &out, &said); code != 0 || out.String() != text {
		t.Errorf("exit code %d, %q, %q", code, out.String(), said.String())
	}
	for args, want := range map[string]int{"missing.yaml": 1, "--link-port=-1": 2} {
		if code := execute([]string{"inject", args}, &out, &said); code != want {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/admin"
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

// TestLogsArePrintable: clients choose most of a line of the access log.
func TestLogsArePrintable(t *testing.T) {
	const unseen = "\u0085\u009b2J\u202e"
	app := harness.NewApp(t)
	for _, format := range []string{`\"{header user-agent}\"`, "{header user-agent}"} {
		egress, file := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access.log")
		harness.Start(t, harness.OneApp(egress, app.Addr, "")+fmt.Sprintf("\naccess_log: {path: %q, format: \"%s\"}", file, format)).Ready()
		c, err := net.Dial("tcp", egress)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: %s\r\nConnection: close\r\n\r\n", unseen); err != nil {
			t.Fatal(err)
		}
		eventually.Nil(t, "a line", func() error {
			text, err := os.ReadFile(file)
			switch {
			case err != nil:
				return err
			case len(text) == 0:
				return errors.New("no line")
			}
			if wantPrintable(t, "the line", string(text)); !strings.Contains(string(text), `\u009b2J`) {
				t.Errorf("it has no escape: %s", text)
			}
			return nil
		})
	}
}

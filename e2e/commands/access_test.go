package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/printable"
)

// accessLines returns the paths in an access log. They are sorted, because only the
// lines of one loop are in order.
func accessLines(t *testing.T, file string) (paths []string) {
	t.Helper()
	text := must.ReadFile(t, file)
	for line := range strings.Lines(string(text)) {
		var l struct {
			Path   string
			Status int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Status != 200 {
			t.Fatalf("%q: %v", line, err)
		}
		paths = append(paths, l.Path)
	}
	slices.Sort(paths)
	return paths
}

// TestAccessLog: each request has a line, through a rotation, a reload to another file,
// reloads that switch the log off and on, and the end of the process.
func TestAccessLog(t *testing.T) {
	a := harness.NewApp(t)
	dir := t.TempDir()
	log := func(name string) string { return filepath.Join(dir, name) }
	egress := harness.FreeAddrs(t, 1)[0]
	plain := harness.OneApp(egress, a.Addr, "")
	logging := func(name string) string { return plain + fmt.Sprintf("\naccess_log: {path: %q}", log(name)) }
	p := harness.Start(t, logging("first"))
	p.Ready()
	sent := 0
	ask := func() {
		t.Helper()
		resp, err := http.Get(fmt.Sprintf("http://%s/%d", egress, sent))
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%+v, %v", resp, err)
		}
		resp.Body.Close()
		sent++
	}
	ask()
	ask()
	harness.AwaitLines(t, log("first"), 2)
	if err := os.Rename(log("first"), log("rotated")); err != nil {
		t.Fatal(err)
	}
	ask()
	harness.AwaitLines(t, log("rotated"), 3)
	p.Signal(syscall.SIGUSR1)
	eventually.Nil(t, "the file to be reopened", func() error {
		_, err := os.Stat(log("first"))
		return err
	})
	ask()
	harness.AwaitLines(t, log("first"), 1)
	p.Reload(plain+`
access_log: {path: `+log("none/file")+`}`, "access_log") // refused: nothing changes
	ask()
	p.Reload(logging("second"), "applied")
	ask()
	p.Reload(plain, "applied")
	ask() // not logged
	p.Signal(syscall.SIGUSR1)
	p.Reload(logging("third"), "applied")
	p.AwaitMetric("remora_access_log_lines_total", 6)
	ask()
	p.Signal(syscall.SIGTERM)
	p.Ends()
	for name, want := range map[string]string{
		"rotated": "[/0 /1 /2]", "first": "[/3 /4]", "second": "[/5]", "third": "[/7]",
	} {
		if got := fmt.Sprint(accessLines(t, log(name))); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// TestAccessLogStdout: the lines can go to standard output.
func TestAccessLogStdout(t *testing.T) {
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, harness.OneApp(egress, a.Addr, "")+"\naccess_log: {path: stdout}")
	p.Ready()
	if status, _, _, err := harness.Get(egress); status != 200 {
		t.Fatal(status, err)
	}
	p.AwaitLog(`"method":"GET","authority":"` + egress + `","path":"/","service":"app"`)
}

// TestAccessLogDiskFull: on a full disk requests still succeed, and lost lines are
// counted.
func TestAccessLogDiskFull(t *testing.T) {
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, harness.OneApp(egress, a.Addr, "")+"\naccess_log: {path: /dev/full}")
	p.Ready()
	for range 10 {
		if status, _, _, err := harness.Get(egress); status != 200 {
			t.Fatal(status, err)
		}
	}
	p.AwaitMetric(`remora_access_log_dropped_total{reason="write"}`, 10)
	if p.Metric("remora_access_log_lines_total") != 0 || p.Metric("remora_access_log_errors_total") == 0 {
		t.Error("lines are counted as written, or no error is counted")
	}
	p.Says(t, "access log not written")
}

// TestLogsArePrintable: clients choose most of a line of the access log.
func TestLogsArePrintable(t *testing.T) {
	const unseen = "\u0085\u009b2J\u202e"
	app := harness.NewApp(t)
	for _, format := range []string{`\"{header user-agent}\"`, "{header user-agent}"} {
		egress, file := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access.log")
		harness.Start(t, harness.OneApp(egress, app.Addr, "")+fmt.Sprintf("\naccess_log: {path: %q, format: \"%s\"}", file, format)).Ready()
		c := must.Dial(t, "tcp", egress)
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
			if i := strings.IndexFunc(string(text), func(r rune) bool { return !printable.Is(r) && r != '\n' }); i >= 0 {
				t.Errorf("the line has a control character at %d: %q", i, text)
			}
			if !strings.Contains(string(text), `\u009b2J`) {
				t.Errorf("it has no escape: %s", text)
			}
			return nil
		})
	}
}

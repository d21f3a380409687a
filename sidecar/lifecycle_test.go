package sidecar

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"go.uber.org/goleak"
)

// TestLifecycle starts, drains and stops a sidecar within this process, and checks that
// nothing is left. Some starts fail, at different steps.
func TestLifecycle(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	a, other := harness.NewApp(t), harness.NewApp(t)
	ignore := goleak.IgnoreCurrent()
	free := harness.FreeAddrs(t, 4)
	services := fmt.Sprintf(`services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, check: {http: /}}
  far: {discover: etcd, check: {tcp: true}}`, a.Addr)
	file := func(admin, egress, more string) string {
		return fmt.Sprintf(`
loops: 2
admin: {address: %q}
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: egress, address: %q, protocol: http, service: app}, {name: bare, address: %q, protocol: http, service: far}]
%s
%s`, admin, free[3], egress, free[2], services, more)
	}
	for _, c := range []struct {
		name, yaml string
		want       string // part of the error; empty means none
	}{
		{"complete", file(free[0], free[1], ""), ""},
		{"no admin API", file("", free[1], ""), ""},
		{"a registration, and etcd down", file(free[0], free[1],
			`register: [{service: x, listener: egress, advertise: "10.0.0.1:1", check: {http: /healthz}}]`), ""},
		{"the admin API's port is taken", file(a.Addr, free[1], ""), "admin.address: can't listen"},
		{"a listener's port is taken", file(free[0], other.Addr, ""), "listeners[0].address: can't listen"},
		{"cancelled", file(free[0], free[1], ""), context.Canceled.Error()},
	} {
		cfg, err := config.Parse("test.yaml", []byte(c.yaml), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.want == context.Canceled.Error() {
			cancel()
		}
		s, err := start(ctx, quiet(t, cfg, ""))
		if err == nil {
			if resp, err := http.Get("http://" + free[1] + "/"); err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			s.startDrain()
			s.startDrain()
			harness.Receive(t, "the drain", s.drained)
			s.stop()
			if p := s.admin.Phase(); p != admin.Drained {
				t.Errorf("%s: phase %v at the end", c.name, p)
			}
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		cancel() // has no effect after the start
		http.DefaultClient.CloseIdleConnections()
		if err := leaktest.Wait(ignore); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// hangingClient is the client of a registry whose Close waits for release.
type hangingClient struct {
	connectedClient
	release chan struct{}
}

func (c hangingClient) Close() error {
	<-c.release
	return nil
}

// TestStopInTime: a part that does not stop does not keep the process.
func TestStopInTime(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	for name, hang := range map[string]func(s *Sidecar, release chan struct{}){
		"tasks in the background": func(s *Sidecar, release chan struct{}) { s.background.Go(func() { <-release }) },
		"checks of registrations": func(s *Sidecar, release chan struct{}) {
			s.registrations.all = []*registration{{cancel: func() {}, done: release}}
		},
		"sources of endpoints": func(s *Sidecar, release chan struct{}) {
			s.sources.byService["hanging"] = &source{unwatch: func() { <-release }}
		},
		"registries": func(s *Sidecar, release chan struct{}) {
			s.discovery.connections["hanging"] = &connection{client: hangingClient{release: release}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s, egress := inProcess(t, "")
			var log strings.Builder
			s.log = slog.New(slog.NewTextHandler(&log, nil))
			release, stopped := make(chan struct{}), make(chan struct{})
			defer close(release)
			hang(s, release)
			go func() {
				defer close(stopped)
				s.stop()
			}()
			harness.Receive(t, "the end of the sidecar", stopped)
			harness.Refused(t, egress)
			if want := name + ": " + context.DeadlineExceeded.Error(); !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log.String())
			}
		})
	}
}

func TestNewLog(t *testing.T) {
	for _, c := range []struct {
		level, format string
		want          string
	}{
		{config.LevelDebug, config.FormatText, "level=DEBUG msg=d\nlevel=INFO msg=i\nlevel=WARN msg=w\nlevel=ERROR msg=e\n"},
		{config.LevelInfo, config.FormatText, "level=INFO msg=i\nlevel=WARN msg=w\nlevel=ERROR msg=e\n"},
		{config.LevelWarn, config.FormatJSON, `"level":"WARN","msg":"w"}` + "\n" + `"level":"ERROR","msg":"e"}` + "\n"},
		{config.LevelError, config.FormatJSON, `"level":"ERROR","msg":"e"}` + "\n"},
	} {
		var out strings.Builder
		log, _, flush := NewLog(&config.Log{Level: c.level, Format: c.format}, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		flush(t.Context())
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			got.WriteString(line[max(strings.Index(line, `level=`), strings.Index(line, `"level"`), 0):])
		}
		if got.String() != c.want {
			t.Errorf("%s %s: %q, want %q", c.level, c.format, got.String(), c.want)
		}
	}
}

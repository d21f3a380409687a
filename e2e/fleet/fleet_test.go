package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
)

// prefix is where the tests have the keys of a fleet.
const prefix = "/test/config"

// steered are sidecars of one fleet, and its etcd.
type steered struct {
	t        *testing.T
	etcd     *lab.Etcd
	data     string   // of etcd
	addr     string   // of etcd
	registry string   // keys of registry.etcd
	where    []string // flags by which commands find the fleet
	app      *harness.App
	sidecars []*harness.Process
	egress   []string
}

// start starts a fleet. Its etcd keeps its data over a restart.
func start(t *testing.T, size int) *steered {
	t.Helper()
	f := newFleet(t, size)
	f.addr = harness.FreeAddrs(t, 1)[0]
	f.registry, f.where = fmt.Sprintf("endpoints: [%q]", f.addr), []string{"--etcd", f.addr, "--prefix", prefix}
	f.startEtcd()
	f.startSidecars()
	return f
}

// newFleet returns a fleet of which nothing runs.
func newFleet(t *testing.T, size int) *steered {
	t.Helper()
	return &steered{t: t, data: t.TempDir(), app: harness.NewApp(t), egress: harness.FreeAddrs(t, size)}
}

func (f *steered) startSidecars() {
	f.t.Helper()
	for i := range f.egress {
		p := harness.Start(f.t, f.config(i, ""))
		f.sidecars = append(f.sidecars, p)
		p.Ready()
	}
}

func (f *steered) startEtcd() {
	f.t.Helper()
	e, err := lab.StartEtcd(lab.EtcdOptions{Dir: f.data, ClientAddr: f.addr})
	if err != nil {
		f.t.Fatal(err)
	}
	f.etcd = e
	f.t.Cleanup(func() { _ = e.Close() })
}

// config returns the configuration of a sidecar, with more keys of its service.
func (f *steered) config(i int, more string) string {
	return fmt.Sprintf(`
node: {id: n%d, labels: {tier: t%d}}
registry: {etcd: {%s, lease_ttl: 600s}, cache_dir: %q}
config: {etcd: %s}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m%s}}`,
		i, i, f.registry, filepath.Join(f.data, fmt.Sprint("cache-", i)), prefix, f.egress[i], f.app.Addr, more)
}

// command runs a command of "remora fleet".
func (f *steered) command(code int, args ...string) (output string) {
	f.t.Helper()
	got, output := harness.Run("fleet", append(args, f.where...)...)
	if got != code {
		f.t.Errorf("fleet %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, output)
	}
	return output
}

// overlay writes a file with an overlay.
func (f *steered) overlay(text string) (file string) {
	f.t.Helper()
	file = filepath.Join(f.t.TempDir(), "overlay.yaml")
	must.WriteFile(f.t, file, text)
	return file
}

// statuses returns what the sidecars say of themselves, as "remora fleet status" shows it.
func (f *steered) statuses() map[string]fleet.Status {
	f.t.Helper()
	var all struct{ Sidecars []fleet.Status }
	if out := f.command(0, "status", "--json"); json.Unmarshal([]byte(out), &all) != nil {
		f.t.Fatal(out)
	}
	by := map[string]fleet.Status{}
	for _, s := range all.Sidecars {
		by[s.Node] = s
	}
	return by
}

// runs waits until so many sidecars run a revision, and their settings are those of it.
func (f *steered) runs(revision int64, sidecars int) {
	f.t.Helper()
	eventually.Nil(f.t, fmt.Sprintf("%d sidecars to run revision %d", sidecars, revision), func() error {
		var on int
		all := f.statuses()
		for _, s := range all {
			if s.Revision == revision {
				on++
			}
		}
		if on != sidecars || len(all) != len(f.sidecars) {
			return fmt.Errorf("%d: %+v", on, all)
		}
		return nil
	})
}

// pending returns how often max_pending of the service is a number, over all sidecars.
func (f *steered) pending(limit int) (n int) {
	f.t.Helper()
	for _, p := range f.sidecars {
		if _, body := p.Get("/config"); strings.Contains(body, fmt.Sprintf("\n    max_pending: %d\n", limit)) {
			n++
		}
	}
	return n
}

// load sends requests to all sidecars until stop, which reports failures.
func (f *steered) load() (stop func()) {
	var ended atomic.Bool
	var failed, sent atomic.Int64
	done := make(chan struct{}, len(f.egress))
	for _, addr := range f.egress {
		go func() {
			defer func() { done <- struct{}{} }()
			for !ended.Load() {
				sent.Add(1)
				if status, code, _, err := harness.Get(addr); err != nil || status != http.StatusOK {
					failed.Add(1)
					f.t.Logf("a request failed: %d %s %v", status, code, err)
				}
			}
		}()
	}
	return func() {
		f.t.Helper()
		ended.Store(true)
		for range f.egress {
			harness.Receive(f.t, "the load to end", done)
		}
		if failed.Load() > 0 || sent.Load() == 0 {
			f.t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
		}
	}
}

// TestRollout: an overlay reaches one sidecar, then all; a rollback reaches all. No request fails meanwhile.
func TestRollout(t *testing.T) {
	f := start(t, 3)
	stop := f.load()
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"), "--to", "5%")
	f.runs(1, 1)
	if n := f.pending(71); n != 1 {
		t.Errorf("%d sidecars have the overlay, want 1", n)
	}
	if out := f.command(1, "set", f.overlay("services: {app: {max_pending: 72}}")); !strings.Contains(out, "under way") {
		t.Errorf("a second roll-out: %s", out)
	}
	if out := f.command(0, "diff"); !strings.Contains(out, "+services: {app: {max_pending: 71}}") {
		t.Errorf("diff: %s", out)
	}
	f.command(0, "rollout")
	f.runs(1, 3)
	if n := f.pending(71); n != 3 {
		t.Errorf("%d sidecars have the overlay, want 3", n)
	}
	f.command(0, "rollback")
	f.runs(0, 3)
	if n := f.pending(1024); n != 3 {
		t.Errorf("%d sidecars have their own settings, want 3", n)
	}
	f.command(0, "set", f.overlay("services: {app: {max_pending: 73}}"), "--to", "tier=t1")
	f.runs(2, 1)
	if _, body := f.sidecars[1].Get("/config"); !strings.Contains(body, "# revision 2 of the overlay") {
		t.Errorf("/config: %.300s", body)
	}
	f.sidecars[1].Counts("remora_fleet_revision", 2)
	stop()
}

// TestRefusal: what no sidecar would take is refused by the command; what a sidecar does not take, by it.
func TestRefusal(t *testing.T) {
	f := start(t, 2)
	for _, c := range []struct{ text, want string }{
		{"services: {app: {hedge: {mode: sometimes}}}", "overlay.yaml:1:32: services.app.hedge.mode: expected one of"},
		{"admin: {address: \"0.0.0.0:1\"}", "overlay.yaml:1:1: admin: an overlay may not change it"},
		{"services: {app: {tls: {ca: system}}}", "overlay.yaml:1:18: services.app.tls: an overlay may not change it"},
		{"services: [", "not valid YAML"},
	} {
		if out := f.command(1, "set", f.overlay(c.text)); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.text, out)
		}
	}
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"))
	f.runs(1, 2)
	f.command(0, "set", f.overlay("\nservices:\n  app: {hedge: {min_delay: 3m}}"))
	eventually.Nil(t, "both sidecars to refuse", func() error {
		for _, s := range f.statuses() {
			r := s.Refused
			if r == nil || s.Revision != 1 || r.Revision != 2 || r.Code != "invalid" || r.File != "revision 2" || r.Line != 3 || r.Column != 28 {
				return fmt.Errorf("%+v, %+v", s, r)
			}
		}
		return nil
	})
	if n := f.pending(71); n != 2 {
		t.Errorf("%d sidecars have the revision from before, want 2", n)
	}
	if out := f.command(0, "status"); !strings.Contains(out, "refuses revision 2 (invalid): revision 2:3:28: services.app.hedge.min_delay") {
		t.Error(out)
	}
	p := f.sidecars[0]
	p.Counts("remora_fleet_refused_revision", 2)
	p.Counts(harness.Outcome("invalid"), 1)
	p.AwaitLog("code=invalid.*revision 2:3:28")
	f.command(0, "rollback")
	eventually.Nil(t, "the refusals to end", func() error {
		for _, s := range f.statuses() {
			if s.Refused != nil || s.Revision != 1 {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
}

// TestRestart: a roll-out holds over restarts, also without etcd. When etcd is back, a rollback reaches both.
func TestRestart(t *testing.T) {
	f := start(t, 2)
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"), "--to", "tier=t0")
	f.runs(1, 1)
	if err := f.etcd.Close(); err != nil {
		t.Fatal(err)
	}
	for i, p := range f.sidecars {
		p.Signal(syscall.SIGTERM)
		p.Ends()
		f.sidecars[i] = p.Again()
		f.sidecars[i].Ready()
	}
	if _, body := f.sidecars[0].Get("/config"); f.pending(71) != 1 || !strings.Contains(body, "# revision 1 of the overlay") {
		t.Errorf("after a restart without etcd: %.300s", body)
	}
	f.sidecars[0].Reload(f.config(0, ", max_queue: 9"), "applied")
	if f.pending(71) != 1 {
		t.Error("a reload of the file has dropped the overlay")
	}
	f.startEtcd()
	f.command(0, "rollback")
	f.runs(0, 2)
}

// TestRollbackTime: a rollback reaches all sidecars. How long that took is only logged.
func TestRollbackTime(t *testing.T) {
	f := start(t, 3)
	f.command(0, "set", f.overlay("services: {app: {hedge: {mode: on}}}"))
	f.runs(1, 3)
	began := time.Now()
	f.command(0, "rollback", "0")
	eventually.True(t, "hedging to be off everywhere", func() bool {
		for _, p := range f.sidecars {
			if _, body := p.Get("/config"); !strings.Contains(body, "# revision 0 of") {
				return false
			}
		}
		return true
	})
	t.Logf("a rollback took %v", time.Since(began))
}

// TestGuard: a roll-out that makes a service slower takes itself back. One sidecar says why, and no request fails.
func TestGuard(t *testing.T) {
	f := start(t, 4)
	stop := f.load()
	slow := f.overlay("routes: [{service: app, fault: {delay: 100ms}}]")
	if out := f.command(1, "set", slow, "--guard", "p90 <= 1.5x"); !strings.Contains(out, "expected --to") {
		t.Errorf("a guard without others to compare with: %s", out)
	}
	f.command(0, "set", slow, "--to", "25%", "--guard", "p90 <= 1.5x")
	var out string
	takenBack := func() bool {
		out = f.command(0, "status")
		return strings.Contains(out, "roll-out of revision 1 taken back")
	}
	// A busy machine may show the status when the roll-out is over.
	if !takenBack() && !strings.Contains(out, "revision 1 to 25%, guarded by p90 <= 1.5x") {
		t.Error(out)
	}
	eventually.True(t, "the guard to stop the roll-out", takenBack)
	if !strings.Contains(out, ": service app: p90 is ") {
		t.Errorf("without the reason:\n%s", out)
	}
	f.runs(0, 4)
	stop()
	lines := 0
	eventually.True(t, "a line of the log", func() bool {
		for _, p := range f.sidecars {
			lines += strings.Count(p.Output.String(), "roll-out taken back by its guard")
		}
		return lines > 0
	})
	if lines != 1 {
		t.Errorf("%d lines of the log say it, want 1", lines)
	}
}

// TestHedgingSums: the commands show what hedging does on the sidecars with a revision.
func TestHedgingSums(t *testing.T) {
	f := start(t, 2)
	f.command(0, "set", f.overlay("services: {app: {hedge: {mode: on}}}"), "--to", "tier=t1")
	f.runs(1, 1)
	for range 7 {
		if status, _, _, err := harness.Get(f.egress[1]); status != http.StatusOK {
			t.Fatal(status, err)
		}
	}
	eventually.Nil(t, "the sums", func() error {
		all := f.statuses()
		if n, others := all["n1"].Services["app"].Requests, all["n0"].Services["app"].Requests; n != 7 || others != 0 {
			return fmt.Errorf("%d and %d requests", n, others)
		}
		return nil
	})
	if out := f.command(0, "status"); !regexp.MustCompile(`\napp +1 +7 +0 +0 +0.0% +0.0%\n`).MatchString(out) {
		t.Error(out)
	}
}

// TestHostileValues: values that no command would put are refused, counted, and change nothing else.
func TestHostileValues(t *testing.T) {
	f := start(t, 1)
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"))
	f.runs(1, 1)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{f.addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	put := func(key, value string) {
		t.Helper()
		if _, err := client.Put(t.Context(), prefix+key, value); err != nil {
			t.Fatal(err)
		}
	}
	p, revision := f.sidecars[0], 1
	for _, c := range []struct{ text, code, log string }{
		{`admin: {address: "0.0.0.0:9901"}`, "fixed_key", "revision N:1:1: admin: an overlay may not change it"},
		{`services: {app: {tls: {}, allow: {}}}`, "fixed_key", "revision N:1:18: services.app.tls"},
		{`listeners: [{name: in, address: "0.0.0.0:1", protocol: http, service: app}]`, "fixed_key", "revision N:1:1: listeners"},
		{`services: {app: {endpoints: ["169.254.169.254:80"]}}`, "fixed_key", "services.app.endpoints"},
		{`limits: {connections: 1}`, "fixed_key", "limits.connections"},
		{strings.Repeat("[", 100), "invalid", "nested more than 32 deep"},
		{"a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: *b", "invalid", "unknown key"},
		{strings.Repeat("#", 300<<10), "no_revision", "bytes"},
	} {
		revision++
		before := p.Metric(harness.Outcome(c.code))
		value, err := json.Marshal(fleet.Revision{Number: int64(revision), Text: c.text})
		if err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprintf("/revisions/%010d", revision), string(value))
		put("/head", fmt.Sprintf(`{"newest": %d, "stable": %d}`, revision, revision))
		p.AwaitMetric("remora_fleet_refused_revision", revision)
		if n := p.Metric(harness.Outcome(c.code)); n != before+1 {
			t.Errorf("%.60s: %d refusals with code %s, want %d", c.text, n, c.code, before+1)
		}
		p.AwaitLog(strings.Replace(c.log, "N", fmt.Sprint(revision), 1))
		p.Counts("remora_fleet_revision", 1)
	}
	put("/head", "{")
	p.AwaitLog("head of the overlays not read")
	if _, err := client.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	p.AwaitLog("etcd has no head of the overlays")
	if status, _, _, err := harness.Get(f.egress[0]); status != http.StatusOK || f.pending(71) != 1 {
		t.Errorf("afterwards: %d, %v", status, err)
	}
	f.command(0, "set", f.overlay("services: {app: {max_pending: 74}}"))
	eventually.True(t, "the new overlay", func() bool { return f.pending(74) == 1 })
}

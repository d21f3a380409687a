package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
)

// TestReloadRefusals: a refused reload changes nothing. The log, /config and the metrics
// report it.
func TestReloadRefusals(t *testing.T) {
	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 2)
	taken := must.Listen(t)
	good := harness.OneApp(addrs[0], a.Addr, "")
	p := harness.Start(t, good)
	p.Ready()
	for _, c := range []struct{ name, yaml, code, reason string }{
		{"unknown key", good + "\nnonsense: 1", "invalid", "nonsense"},
		{"not YAML", "{", "invalid", ""},
		{"another node", good + "\nnode: {id: else}\nloops: 3", "needs_restart", "node, loops: needs a restart"},
		{"no certificate", strings.Replace(good, "services: {", `services: {safe: {discover: static, endpoints: ["127.0.0.1:1"], protocol: link, `+
			`tls: {cert: /none, key: /none, ca: /none, peers: ["dns:none"]}}, `, 1), "certificate", "services.safe.tls"},
		{"address taken", strings.Replace(good, addrs[0], taken.Addr().String(), 1), "listen", "address already in use"},
		{"second address taken", strings.Replace(good, "listeners: [", fmt.Sprintf(
			"listeners: [{name: a, address: %q, protocol: http}, {name: b, address: %q, protocol: http}, ",
			addrs[1], taken.Addr()), 1), "listen", "listeners[1].address: can't listen at "},
	} {
		p.Reload(c.yaml, c.code)
		_, body := p.Get("/config")
		if !strings.HasPrefix(body, "# generation 1, since ") || !strings.Contains(body, "("+c.code+"):") || !strings.Contains(body, c.reason) {
			t.Errorf("%s: /config begins %q", c.name, strings.SplitN(body, "\nnode:", 2)[0])
		}
		p.Says(t, "code="+c.code)
		if status, _, _, err := harness.Get(addrs[0]); status != 200 {
			t.Errorf("%s: response %d, %v", c.name, status, err)
		}
		harness.Refused(t, addrs[1])
	}
	p.Reload(good, "unchanged")
	if _, body := p.Get("/config"); strings.Contains(body, "# refused") {
		t.Errorf("/config still has a refusal after a successful reload")
	}
	p.Reload(harness.OneApp(addrs[0], a.Addr, ", max_pending: 7"), "applied")
	p.Counts("remora_config_generation", 2)
}

// TestWatch: with --watch a changed file is applied, also if it is a symbolic link that
// changes, as in a mounted ConfigMap.
func TestWatch(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, harness.OneApp(egress, a.Addr, ""), "--watch")
	p.Ready()
	p.Write(harness.OneApp(egress, a.Addr, ", max_pending: 7"))
	generation := func(want int) {
		t.Helper()
		eventually.Nil(t, "the generation", func() error {
			if n := p.Metric("remora_config_generation"); n != want {
				return fmt.Errorf("%d, want %d", n, want)
			}
			return nil
		})
	}
	generation(2)
	text := must.ReadFile(t, p.File)
	dir := filepath.Dir(p.File)
	for i, limit := range []string{"8", "9"} {
		version := filepath.Join(dir, "version-"+limit)
		next := strings.Replace(string(text), "max_pending: 7", "max_pending: "+limit, 1)
		must.WriteFile(t, version, next)
		if err := os.Symlink(version, p.File+".link"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(p.File+".link", p.File); err != nil {
			t.Fatal(err)
		}
		generation(3 + i)
	}
	late := filepath.Join(dir, "late") // a folder that comes after the configuration that needs it
	p.Write(harness.OneApp(egress, a.Addr, "") + fmt.Sprintf("\naccess_log: {path: %q}", filepath.Join(late, "access.log")))
	p.AwaitMetric(harness.Outcome("access_log"), 1)
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	generation(5)
}

// TestReloadRegistrations: a reload registers added endpoints. It removes others, and
// closes their link ports. Unchanged ones keep their leases.
func TestReloadRegistrations(t *testing.T) {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 2)
	config := func(names ...string) string {
		var listeners, register []string
		for i, name := range names {
			listeners = append(listeners, fmt.Sprintf(`{name: %s, address: %q, protocol: link, service: app}`, name, addrs[i]))
			register = append(register, fmt.Sprintf(`{service: %s, listener: %s, advertise: %q}`, name, name, addrs[i]))
		}
		return fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}}
listeners: [%s]
register: [%s]
services: {app: {discover: static, endpoints: [%q], protocol: http}}`,
			e.Addr(), strings.Join(listeners, ", "), strings.Join(register, ", "), a.Addr)
	}
	p := harness.Start(t, config("first"))
	p.Ready()
	registered := func(want ...string) {
		t.Helper()
		eventually.Nil(t, "the registrations", func() error {
			_, body := p.Get("/endpoints")
			got := regexp.MustCompile(`"service": "(\w+)",\s+"address": "[^"]+",\s+"state": "registered"`).FindAllStringSubmatch(body, -1)
			names := []string{}
			for _, m := range got {
				names = append(names, m[1])
			}
			if fmt.Sprint(names) != fmt.Sprint(want) {
				return fmt.Errorf("%v, want %v", names, want)
			}
			return nil
		})
	}
	registered("first")
	p.Reload(config("first", "second"), "applied")
	registered("first", "second")
	p.Reload(config("first"), "applied")
	registered("first")
	harness.Refused(t, addrs[1])
}

// TestReloadUnknownEndpoints: a reload is refused if the endpoints of a new service stay
// unknown.
func TestReloadUnknownEndpoints(t *testing.T) {
	t.Parallel() // it mostly waits
	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 2)
	registry := fmt.Sprintf("\nregistry: {etcd: {endpoints: [%q]}}", addrs[1])
	p := harness.Start(t, harness.OneApp(addrs[0], a.Addr, "")+registry)
	p.Ready()
	p.Reload(fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: etcd}}`, addrs[0])+registry, "endpoints_unknown")
	if status, _, _, err := harness.Get(addrs[0]); status != 200 {
		t.Errorf("response %d, %v", status, err)
	}
}

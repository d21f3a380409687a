package fleet

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/lab"
)

// TestSecureEtcd: commands and sidecars reach an etcd that demands certificates and users. Commands have both from the file of
// a sidecar. A wrong password, and a user who may not write, are refused as such.
func TestSecureEtcd(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFleet(t, 1)
	ca := testcerts.New(t)
	server := harness.CertFiles(t, ca, "127.0.0.1")
	own := harness.CertFiles(t, ca, harness.ConsumerName)
	e, err := lab.StartEtcd(lab.EtcdOptions{CertFile: server.Cert, KeyFile: server.Key, ClientCA: server.CA})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	secured := harness.Trusting(ca)
	secured.ServerName = "127.0.0.1"
	secured.Certificates = append(secured.Certificates, harness.Pair(t, own))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, TLS: secured})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx := t.Context()
	read, write := clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermReadWrite)
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.UserAdd(ctx, "sidecar", "swims"); return err },
		func() error { _, err := client.RoleAdd(ctx, "sidecar"); return err },
		func() error { _, err := client.RoleGrantPermission(ctx, "sidecar", "/", "0", read); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "sidecar", prefix+"/status/", prefix+"/status0", write)
			return err
		},
		func() error { _, err := client.UserGrantRole(ctx, "sidecar", "sidecar"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user, password string) string {
		return fmt.Sprintf("endpoints: [%q], username: %s, password: %s, tls: {cert: %q, key: %q, ca: %q}", e.Endpoint(), user, password, own.Cert, own.Key, own.CA)
	}
	f.registry = as("sidecar", "swims")
	f.startSidecars()
	f.registry = as("root", "secret")
	operator := harness.NewProcess(t, f.config(0, ""))
	f.where = []string{"-c", operator.File}
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"))
	f.runs(1, 1)
	if f.pending(71) != 1 {
		t.Error("the sidecar has no overlay")
	}
	for _, c := range []struct{ registry, want string }{
		{as("root", "wrong"), "etcd: denied: "},
		{as("sidecar", "swims"), "etcd: denied: "},
		{fmt.Sprintf("endpoints: [%q]", strings.TrimPrefix(e.Endpoint(), "https://")), "etcd: unreachable: "},
	} {
		f.registry = c.registry
		f.where = []string{"-c", harness.NewProcess(t, f.config(0, "")).File}
		if out := f.command(1, "rollback"); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s, want %s", c.registry, out, c.want)
		}
	}
	f.where = []string{"-c", operator.File}
	f.runs(1, 1)
}

// TestPartitionedEtcd: without a majority of etcd, and behind a balancer whose servers are silent, a command fails with the code
// of the cause, and the revision in use stays. No request fails. When etcd is back, commands work again.
func TestPartitionedEtcd(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFleet(t, 2)
	c := harness.StartEtcds(t)
	c.Leader()
	var fronts []string
	for _, m := range c.Members {
		fronts = append(fronts, m.Front.Addr())
	}
	f.registry, f.where = "endpoints: "+c.Fronts(), []string{"--etcd", strings.Join(fronts, ","), "--prefix", prefix}
	f.startSidecars()
	f.command(0, "set", f.overlay("services: {app: {max_pending: 71}}"))
	f.runs(1, 2)
	revision := int64(1)
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"majority killed", func() { c.Kill(c.Members[:2]...) }, func() { c.Start(c.Members[:2]...) }},
		{"all silent", func() { c.SetSilent(true, c.Members...) }, func() { c.SetSilent(false, c.Members...) }},
	} {
		stop := f.load()
		fault.begin()
		for _, args := range [][]string{{"set", f.overlay("services: {app: {max_pending: 72}}")}, {"status"}} {
			if out := f.command(1, args...); !strings.Contains(out, "etcd: unreachable: ") {
				t.Errorf("%s: %s: %s", fault.name, args[0], out)
			}
		}
		p := f.sidecars[0]
		eventually.True(t, fault.name+": the source to be down", func() bool {
			_, body := p.Get("/readyz?verbose")
			return strings.Contains(body, "[-]etcd failed: unreachable")
		})
		if f.pending(71) != 2 {
			t.Errorf("%s: the revision in use is another", fault.name)
		}
		fault.end()
		c.Leader()
		revision++
		f.command(0, "set", f.overlay("# again\nservices: {app: {max_pending: 71}}"))
		f.runs(revision, 2)
		stop()
	}
}

// TestRefusedUntilFileFits: a sidecar that has refused a revision applies it once a reload of its own file makes it fit.
func TestRefusedUntilFileFits(t *testing.T) {
	f := start(t, 2)
	f.command(0, "set", f.overlay("services: {app: {hedge: {min_delay: 1m}}}"))
	for _, p := range f.sidecars {
		p.AwaitMetric("remora_fleet_refused_revision", 1)
	}
	f.sidecars[1].Reload(f.config(1, ", hedge: {max_delay: 90s}"), "applied")
	f.runs(1, 1)
	f.sidecars[1].AwaitMetric("remora_fleet_revision", 1)
	if _, body := f.sidecars[1].Get("/config"); !strings.Contains(body, "min_delay: 1m") {
		t.Errorf("the overlay is not in use: %s", body)
	}
	f.sidecars[0].Counts("remora_fleet_refused_revision", 1)
}

package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/handover"
)

// registered starts a provider that is in etcd, under a lease that does not expire.
func registered(t *testing.T) (p *harness.Process, client *clientv3.Client, key string) {
	t.Helper()
	p, client, key, _ = registeredAs(t)
	return p, client, key
}

// registeredAs is like registered. config returns its configuration with another
// application, if app is not empty, and with more keys of the registration.
func registeredAs(t *testing.T) (p *harness.Process, client *clientv3.Client, key string, config func(app, more string) string) {
	t.Helper()
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if client, err = clientv3.New(clientv3.Config{Endpoints: []string{e.Addr()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ingress := harness.FreeAddrs(t, 1)[0]
	first := harness.NewApp(t).Addr
	config = func(app, more string) string {
		return fmt.Sprintf(`
node: {id: n1}
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
register: [{service: compute, listener: ingress, advertise: %q%s}]`, e.Addr(), ingress, cmp.Or(app, first), ingress, more)
	}
	p = harness.Start(t, config("", ""))
	p.Ready()
	return p, client, "/remora/services/compute/n1@" + ingress, config
}

// leaseOf waits until the key exists under another lease than before.
func leaseOf(t *testing.T, client *clientv3.Client, key string, before int64) (lease int64) {
	t.Helper()
	eventually.Nil(t, "the registration", func() error {
		got, err := client.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease == before {
			return fmt.Errorf("%+v, %v", got, err)
		}
		lease = got.Kvs[0].Lease
		return nil
	})
	return lease
}

// TestHotRestartRegistration: the successor owns the key before the predecessor revokes
// its lease, and the key is never missing.
func TestHotRestartRegistration(t *testing.T) {
	p, client, key := registered(t)
	old := leaseOf(t, client, key, 0)
	stays := watchKey(t, client, key)
	p.Replace()
	p.Ends()
	leaseOf(t, client, key, old)
	if ttl, err := client.TimeToLive(t.Context(), clientv3.LeaseID(old)); err != nil || ttl.TTL != -1 {
		t.Errorf("the lease of the predecessor still exists: %+v, %v", ttl, err)
	}
	stays()
}

// watchKey returns a function that fails if the key was removed before its call.
func watchKey(t *testing.T, client *clientv3.Client, key string) (stays func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	begin, err := client.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	removed := client.Watch(ctx, key, clientv3.WithRev(begin.Header.Revision), clientv3.WithFilterPut())
	return func() {
		t.Helper()
		unremoved(ctx, t, client, removed)
	}
}

func unremoved(ctx context.Context, t *testing.T, client *clientv3.Client, removed clientv3.WatchChan) {
	t.Helper()
	deadline := time.After(harness.Patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		// etcd sends nothing while the watch still reads old revisions.
		if err := client.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case ev, open := <-removed:
			if !open || ev.Err() != nil || len(ev.Events) > 0 {
				t.Errorf("the key was removed, or the watch failed: %+v", ev)
			}
			return
		case <-again.C:
		case <-deadline:
			t.Fatal("timeout waiting for the watch")
		}
	}
}

// TestReloadRegistration: a change of a registration, or of the application behind it,
// keeps the key and its lease.
func TestReloadRegistration(t *testing.T) {
	p, client, key, config := registeredAs(t)
	lease := leaseOf(t, client, key, 0)
	stays := watchKey(t, client, key)
	other := harness.NewApp(t).Addr
	const check = ", check: {http: /, interval: 20ms, timeout: 15s}"
	for i, more := range []string{"", check, ", check: {tcp: true, timeout: 15s}", check} {
		weight := i + 2
		p.Reload(config("", fmt.Sprintf("%s, weight: 1%d", more, i)), "applied")
		p.Reload(config(other, fmt.Sprintf("%s, weight: %d", more, weight)), "applied")
		eventually.Nil(t, "the weight", func() error {
			got, err := client.Get(t.Context(), key)
			if err != nil || len(got.Kvs) != 1 || !strings.Contains(string(got.Kvs[0].Value), fmt.Sprintf(`"weight":%d,`, weight)) {
				return fmt.Errorf("%+v, %v; want weight %d", got, err, weight)
			}
			if now := got.Kvs[0].Lease; now != lease {
				t.Fatalf("under lease %x, and before under %x", now, lease)
			}
			return nil
		})
	}
	stays()
}

// TestReloadBrokenRegistration: a reload adds a check that the application fails. The
// endpoint is withdrawn, and is back after a reload removes the check.
func TestReloadBrokenRegistration(t *testing.T) {
	p, client, key, config := registeredAs(t)
	leaseOf(t, client, key, 0)
	p.Reload(config(harness.FreeAddrs(t, 1)[0], ", check: {tcp: true, interval: 20ms, timeout: 15s}"), "applied")
	eventually.Nil(t, "the key to go", func() error {
		if got, err := client.Get(t.Context(), key); err != nil || len(got.Kvs) > 0 {
			return fmt.Errorf("%+v, %v", got, err)
		}
		return nil
	})
	p.Reload(config("", ""), "applied")
	leaseOf(t, client, key, 0)
}

// TestHandOverAbandoned: if a successor ends before it serves, the predecessor resumes its
// registration.
func TestHandOverAbandoned(t *testing.T) {
	p, client, key := registered(t)
	lease := leaseOf(t, client, key, 0)
	for range 2 {
		conn, err := handover.Dial(t.Context(), p.SuccessorPath())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(harness.Patience))
		_, sockets, err := conn.Receive()
		if err != nil || len(sockets) != 2 {
			t.Fatalf("%d sockets, %v", len(sockets), err)
		}
		for _, ln := range sockets {
			ln.Close()
		}
		if err := conn.Say(handover.Ready); err != nil {
			t.Fatal(err)
		}
		if err := conn.Hear(handover.Released); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Get(t.Context(), key); err != nil || len(got.Kvs) > 0 {
			t.Errorf("registered again while a successor owns the key: %+v, %v", got, err)
		}
		conn.Close()
		if now := leaseOf(t, client, key, 0); now != lease {
			t.Errorf("under lease %x, and before under %x", now, lease)
		}
	}
	p.Ready()
	p.Signal(syscall.SIGTERM)
	p.Ends()
}

package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/history/record"
)

// TestFrozenMember: a registration stays in etcd while any one of three members is frozen for longer than a lease. The sidecar has
// the stream of its lease at one of them, and leaves the member.
func TestFrozenMember(t *testing.T) {
	harness.NeedsBinary(t)
	t.Parallel() // it mostly waits
	const ttl = 6
	etcds := harness.StartEtcds(t)
	leader, others := etcds.Leader()
	var addrs []string
	for _, m := range etcds.Members {
		addrs = append(addrs, strconv.Quote(m.Addr()))
	}
	ingress := harness.FreeAddrs(t, 1)[0]
	key := services + "/app/n@" + ingress
	harness.Start(t, fmt.Sprintf(`
loops: 1
node: {id: n}
registry: {etcd: {endpoints: [%s], lease_ttl: %ds}}
listeners: [{name: ingress, address: %q, protocol: http, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http}}
register: [{service: app, listener: ingress, advertise: %[3]q}]`, strings.Join(addrs, ", "), ttl, ingress, harness.NewApp(t).Addr)).Ready()

	// The leader is the last: once it goes on, etcd 3.4 may end all leases.
	for _, frozen := range append(others, leader) {
		revision := awaitKey(t, etcds.Client, key)
		etcds.Signal(syscall.SIGSTOP, frozen)
		if n := removals(t, etcds, frozen, key, revision, ttl+2); n > 0 {
			t.Errorf("the key was removed %d times while member %d was frozen", n, slices.Index(etcds.Members, frozen))
		}
		etcds.Signal(syscall.SIGCONT, frozen)
		etcds.Leader()
	}
	awaitKey(t, etcds.Client, key)
}

// awaitKey waits until etcd has a key. It returns the revision of etcd.
func awaitKey(t *testing.T, client *clientv3.Client, key string) (revision int64) {
	t.Helper()
	eventually.Nil(t, "the key", func() error {
		got, err := client.Get(t.Context(), key)
		if err == nil && got.Count == 0 {
			err = errors.New("it is missing")
		}
		if err == nil {
			revision = got.Header.Revision
		}
		return err
	})
	return revision
}

// removals returns how often a key was removed since a revision, and while another lease ends: etcd counts its time. A member is frozen.
func removals(t *testing.T, etcds *harness.Etcds, frozen *harness.EtcdMember, key string, revision, ttl int64) (n int) {
	t.Helper()
	var addrs []string
	for _, m := range etcds.Members {
		if m != frozen {
			addrs = append(addrs, m.Addr())
		}
	}
	client, err := record.Client(addrs)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	lease, err := client.Grant(ctx, ttl)
	if err != nil {
		t.Fatal(err)
	}
	const end = services + "/end"
	if _, err := client.Put(ctx, end, "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	for resp := range client.Watch(ctx, services, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, ev := range resp.Events {
			switch {
			case ev.Type != mvccpb.DELETE:
			case string(ev.Kv.Key) == key:
				n++
			case string(ev.Kv.Key) == end:
				return n
			}
		}
	}
	t.Fatal("the lease has not ended")
	return 0
}

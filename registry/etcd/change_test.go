package etcd_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestChange checks that a changed value is put under the same lease, whatever happens
// to the registration meanwhile. A change of the key is refused.
func TestChange(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	consumer := open(t, s.Endpoint(), nil)
	h := open(t, s.Endpoint(), nil).Register(at("10.0.0.1:80", 1))
	waitState(t, h, registry.Registered)
	got := registrytest.Watch(t, consumer, "compute")
	weighs := func(weight int) {
		t.Helper()
		got.Wait("the weight", func(s *registry.Snapshot) bool { return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == weight })
	}
	weighs(1)
	begin, err := client.Get(ctx, prefix+"/compute/n@10.0.0.1:80")
	if err != nil || len(begin.Kvs) != 1 {
		t.Fatal(begin, err)
	}
	events := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(begin.Header.Revision+1))
	h.Change(at("10.0.0.1:80", 1))
	h.Change(at("10.0.0.2:80", 9))
	h.Change(registry.Registration{})
	h.Change(at("10.0.0.1:80", 2))
	weighs(2)
	h.Yield()
	h.Change(at("10.0.0.1:80", 3))
	h.Restore()
	weighs(3)
	waitState(t, h, registry.Registered)
	for seen := 0; seen < 2; {
		for _, ev := range (<-events).Events {
			seen++
			if ev.Type != clientv3.EventTypePut || ev.Kv.Lease != begin.Kvs[0].Lease {
				t.Errorf("event %+v", ev)
			}
		}
	}

	// A withdrawn registration stays withdrawn; Restore puts the changed value.
	h.Withdraw()
	got.WaitAddrs()
	h.Change(at("10.0.0.1:80", 4))
	if h.State() != registry.Withdrawn {
		t.Errorf("state %v", h.State())
	}
	h.Restore()
	weighs(4)
	for weight := 5; weight < 30; weight++ { // faster than etcd puts
		h.Change(at("10.0.0.1:80", weight))
	}
	weighs(29)
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	h.Change(at("10.0.0.1:80", 30))
	if now, err := client.Get(ctx, prefix, clientv3.WithPrefix()); err != nil || len(now.Kvs) > 0 || h.State() != registry.Closed {
		t.Errorf("after the end: %+v, %v, %v", now, err, h.State())
	}
}

// TestChangeRefused checks that a registration stays unchanged while etcd has no space
// for the changed value.
func TestChangeRefused(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	const key = prefix + "/compute/n@10.0.0.1:80"
	h := open(t, s.Endpoint(), renewsSoon).Register(at("10.0.0.1:80", 1))
	waitState(t, h, registry.Registered)
	begin, err := client.Get(ctx, key)
	if err != nil || len(begin.Kvs) != 1 {
		t.Fatal(begin, err)
	}
	lease := clientv3.LeaseID(begin.Kvs[0].Lease)
	server := pb.NewMaintenanceClient(client.ActiveConnection())
	alarm := pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := server.Alarm(ctx, &alarm); err != nil {
		t.Fatal(err)
	}
	h.Change(at("10.0.0.1:80", 2))
	eventually.True(t, "the change to be refused", func() bool { return h.State() == registry.Pending && h.Err() != nil })
	awaitRenewal(ctx, t, client, lease)
	now, err := client.Get(ctx, key)
	if err != nil || len(now.Kvs) != 1 || now.Kvs[0].ModRevision != begin.Kvs[0].ModRevision {
		t.Fatalf("while there is no space: %+v, %v", now, err)
	}
	if h.State() != registry.Pending || h.Err() == nil {
		t.Errorf("%v, %v", h.State(), h.Err())
	}

	alarm.Action = pb.AlarmRequest_DEACTIVATE
	if _, err := server.Alarm(ctx, &alarm); err != nil {
		t.Fatal(err)
	}
	waitState(t, h, registry.Registered)
	now, err = client.Get(ctx, key)
	if err != nil || len(now.Kvs) != 1 || now.Kvs[0].Version != 2 || clientv3.LeaseID(now.Kvs[0].Lease) != lease {
		t.Errorf("at the end: %+v, %v", now, err)
	}
}

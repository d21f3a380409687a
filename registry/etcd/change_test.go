package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
)

// TestChange: what a registration changes to is put under the same lease, whatever
// becomes of it meanwhile; another key it can't be.
func TestChange(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	consumer := open(t, s.Endpoint(), nil)
	h := open(t, s.Endpoint(), nil).Register(at("10.0.0.1:80", 1))
	waitState(t, h, registry.Registered)
	got := watch(t, consumer, "compute")
	weighs := func(weight int) {
		t.Helper()
		got.wait("the weight", func(s *registry.Snapshot) bool { return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == weight })
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

	// While it is withdrawn it stays so; what it changed to comes with Restore.
	h.Withdraw()
	got.waitAddrs()
	h.Change(at("10.0.0.1:80", 4))
	if h.State() != registry.Withdrawn {
		t.Errorf("state %v", h.State())
	}
	h.Restore()
	weighs(4)
	for weight := 5; weight < 30; weight++ { // faster than puts are
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

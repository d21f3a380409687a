package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestTokenExpired checks that new watches do not suffer from older ones that began
// with a token which etcd no longer accepts.
func TestTokenExpired(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	known := func(o *etcd.Options) { o.Username, o.Password = "root", "secret" }
	r := open(t, s.Endpoint(), known)
	before, first := registrytest.Watch(t, r, "before"), r.Register(at("10.0.0.1:80", 0))
	waitState(t, first, registry.Registered)
	before.WaitAddrs()
	put(t, ctx, client, "before/n", `{"Op":0,"Addr":"10.0.0.9:80"}`)
	before.WaitAddrs("10.0.0.9:80") // seen by the watch, not by a list
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}

	waitState(t, r.Register(at("10.0.0.2:80", 0)), registry.Registered)
	other := open(t, s.Endpoint(), known).Register(at("10.0.0.3:80", 1))
	waitState(t, other, registry.Registered)
	got := registrytest.Watch(t, r, "compute")
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	lists := r.Stats().Lists
	for weight := 2; weight < 10; weight++ {
		other.Change(at("10.0.0.3:80", weight))
		got.Wait("the weight", func(s *registry.Snapshot) bool { return s.Endpoints[2].Weight == weight })
	}
	if n := r.Stats().Lists - lists; n > 1 { // one watch may have been refused
		t.Errorf("listed %d times instead of followed", n)
	}
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Username: "root", Password: "secret", Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	now, err := root.Get(ctx, prefix+"/compute/n@10.0.0.2:80")
	if err != nil || len(now.Kvs) != 1 || now.Kvs[0].Version > 2 {
		t.Errorf("put again and again: %+v, %v", now, err)
	}
}

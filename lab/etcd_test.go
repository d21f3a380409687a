package lab

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestEtcdRestart(t *testing.T) {
	dir := t.TempDir()
	first, err := StartEtcd(EtcdOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	addr := first.Addr()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{first.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	client.Watch(ctx, "k") // an open watch does not hold up Close

	for _, c := range []struct {
		name string
		dir  string
		keys int
	}{{"kept data", dir, 1}, {"no data", "", 0}} {
		if err := first.Close(); err != nil {
			t.Fatal(c.name, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(c.name, "second Close:", err)
		}
		if first, err = StartEtcd(EtcdOptions{Dir: c.dir, ClientAddr: addr}); err != nil {
			t.Fatal(c.name, err)
		}
		resp, err := client.Get(ctx, "k")
		if err != nil || len(resp.Kvs) != c.keys {
			t.Fatalf("%s: %v keys, error %v", c.name, resp, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestEtcdPortTaken(t *testing.T) {
	first, err := StartEtcd(EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second, err := StartEtcd(EtcdOptions{ClientAddr: first.Addr()}); err == nil {
		second.Close()
		t.Fatal("a second server on the same port started")
	}
}

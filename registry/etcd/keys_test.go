package etcd_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry/etcd"
)

// followed receives the values of a key.
func followed(t *testing.T, r *etcd.Registry, key string) (next func() etcd.Value) {
	t.Helper()
	values := make(chan etcd.Value, 64)
	t.Cleanup(r.Follow(key, func(v etcd.Value) { values <- v }))
	return func() etcd.Value {
		t.Helper()
		select {
		case v := <-values:
			return v
		case <-time.After(timeout):
			t.Fatal("timeout waiting for a value")
			panic("not reached")
		}
	}
}

// TestFollow: a follower has each value, a missing key too, and goes on after etcd was gone, and after it has lost its data.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	s := startEtcd(t, lab.EtcdOptions{Dir: dir})
	addr := s.Addr()
	r := open(t, s.Endpoint(), nil)
	ctx, c := raw(t, s)
	next := followed(t, r, "/key")
	if v := next(); v.Revision != 0 || v.Data != nil {
		t.Errorf("before the first put: %+v", v)
	}
	for _, text := range []string{"a", "b"} {
		put, err := c.Put(ctx, "/key", text)
		if err != nil {
			t.Fatal(err)
		}
		if v := next(); string(v.Data) != text || v.Revision != put.Header.Revision {
			t.Errorf("after a put of %s at %d: %s at %d", text, put.Header.Revision, v.Data, v.Revision)
		}
	}
	if _, err := c.Put(ctx, "/key2", "another key"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, "/key"); err != nil {
		t.Fatal(err)
	}
	if v := next(); v.Revision != 0 {
		t.Errorf("after a delete: %+v", v)
	}
	if _, err := c.Put(ctx, "/key", "c"); err != nil {
		t.Fatal(err)
	}
	next()
	s.Close()
	again := startEtcd(t, lab.EtcdOptions{Dir: dir, ClientAddr: addr})
	if _, err := c.Put(ctx, "/key", "d"); err != nil {
		t.Fatal(err)
	}
	if v := next(); string(v.Data) != "d" {
		t.Errorf("after a restart of etcd: %+v", v)
	}
	again.Close()
	startEtcd(t, lab.EtcdOptions{ClientAddr: addr}) // empty
	if v := next(); v.Revision != 0 {
		t.Errorf("after etcd has lost its data: %+v", v)
	}
	if _, err := c.Put(ctx, "/key", "e"); err != nil {
		t.Fatal(err)
	}
	if v := next(); string(v.Data) != "e" {
		t.Errorf("at last: %+v", v)
	}
}

// TestFollowStops: a follower that was stopped gets nothing more.
func TestFollowStops(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	r := open(t, s.Endpoint(), nil)
	ctx, c := raw(t, s)
	first := make(chan bool, 1)
	stopped := false
	stop := r.Follow("/key", func(etcd.Value) {
		if stopped {
			t.Error("called after stop")
		}
		stopped = true
		first <- true
	})
	<-first
	stop()
	if _, err := c.Put(ctx, "/key", "a"); err != nil {
		t.Fatal(err)
	}
	if v := followed(t, r, "/key")(); string(v.Data) != "a" { // by then the first would have it
		t.Errorf("%+v", v)
	}
	r.Close()
	r.Follow("/key", func(etcd.Value) { t.Error("called after Close") })()
}

// TestPublish: a value stays under one lease while it changes, comes back after somebody has removed it, and goes with
// Close.
func TestPublish(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	r := open(t, s.Endpoint(), nil)
	ctx, c := raw(t, s)
	has := func(value string) (lease int64) {
		t.Helper()
		eventually.Nil(t, "the value "+value, func() error {
			got, err := c.Get(ctx, "/status/a")
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value {
				return fmt.Errorf("%+v, %v", got, err)
			}
			lease = got.Kvs[0].Lease
			return nil
		})
		return lease
	}
	p := r.Publish("/status/a", "1")
	lease := has("1")
	if lease == 0 {
		t.Error("without a lease")
	}
	for _, value := range []string{"2", "3"} {
		p.Set(value)
		if now := has(value); now != lease {
			t.Errorf("under lease %x, and before under %x", now, lease)
		}
	}
	if _, err := c.Delete(ctx, "/status/a"); err != nil {
		t.Fatal(err)
	}
	has("3")
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if got, err := c.Get(ctx, "/status/", clientv3.WithPrefix()); err != nil || len(got.Kvs) > 0 {
		t.Errorf("after Close: %+v, %v", got, err)
	}
	r.Close()
	if err := r.Publish("/status/a", "4").Close(ctx); err == nil {
		t.Error("published by a Registry that is closed")
	}
}

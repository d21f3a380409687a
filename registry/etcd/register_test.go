package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/naming/endpoints"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

func TestRegister(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	consumer, p1, p2 := open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil)
	got := registrytest.Watch(t, consumer, "compute")
	got.WaitAddrs()

	h1 := p1.Register(registry.Registration{Service: "compute", Node: "n1", Addr: "10.0.0.1:80", Zone: "z", Protocol: "http"})
	got.WaitAddrs("10.0.0.1:80")
	h2 := p2.Register(registry.Registration{Service: "compute", Node: "n2", Addr: "10.0.0.2:80", Weight: 3})
	snap := got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	want := []registry.Endpoint{
		{Addr: "10.0.0.1:80", Weight: 1, Zone: "z", Protocol: "http", Node: "n1"},
		{Addr: "10.0.0.2:80", Weight: 3, Node: "n2"},
	}
	for i, e := range snap.Endpoints {
		if e != want[i] {
			t.Errorf("got %+v, want %+v", e, want[i])
		}
	}
	if snap.Service != "compute" || snap.Source != registry.SourceLive || snap.Changed.IsZero() {
		t.Errorf("snapshot %+v", snap)
	}

	h1.Withdraw()
	h1.Withdraw()
	if h1.State() != registry.Withdrawn {
		t.Errorf("state %v after Withdraw", h1.State())
	}
	got.WaitAddrs("10.0.0.2:80")
	h1.Restore()
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	waitState(t, h1, registry.Registered)

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for range 2 {
		if err := h2.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if h2.State() != registry.Closed || h2.Err() != nil {
		t.Errorf("after Close: %v, %v", h2.State(), h2.Err())
	}
	h2.Restore() // closed is final
	got.WaitAddrs("10.0.0.1:80")

	// The last endpoint is kept for a while.
	if err := h1.Close(ctx); err != nil {
		t.Error(err)
	}
	got.WaitAddrs()
}

// gRPC clients with etcd's own resolver must be able to read a registered value.
func TestNamingEndpointsFormat(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	r := open(t, s.Endpoint(), nil)
	reg := at("10.0.0.5:15006", 0)
	reg.Metadata = map[string]string{"version": "7", "weight": "ours counts"}
	waitState(t, r.Register(reg), registry.Registered)

	resp, err := client.Get(ctx, prefix+"/compute/n@10.0.0.5:15006")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(resp, err)
	}
	const want = `{"Op":0,"Addr":"10.0.0.5:15006","Metadata":{"node":"n","protocol":"link","version":"7","weight":1,"zone":""}}`
	if string(resp.Kvs[0].Value) != want {
		t.Errorf("got  %s\nwant %s", resp.Kvs[0].Value, want)
	}
	manager, err := endpoints.NewManager(client, prefix+"/compute")
	if err != nil {
		t.Fatal(err)
	}
	list, err := manager.List(ctx)
	if err != nil || list[prefix+"/compute/n@10.0.0.5:15006"].Addr != "10.0.0.5:15006" {
		t.Errorf("etcd's manager sees %v, %v", list, err)
	}
	// In the other direction, a value written by etcd's manager must be readable.
	err = manager.AddEndpoint(ctx, prefix+"/compute/other", endpoints.Endpoint{Addr: "10.0.0.6:80", Metadata: "text"})
	if err != nil {
		t.Fatal(err)
	}
	registrytest.Watch(t, r, "compute").WaitAddrs("10.0.0.5:15006", "10.0.0.6:80")
}

func TestRegisterLeaseLost(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	link := cutlink.To(t, s.Addr())
	consumer, cutOff, other := open(t, s.Endpoint(), nil), open(t, link.Addr(), brief), open(t, s.Endpoint(), nil)
	got := registrytest.Watch(t, consumer, "compute")
	h := cutOff.Register(at("10.0.0.1:80", 0))
	other.Register(at("10.0.0.2:80", 0))
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")

	link.Cut(true)
	got.WaitAddrs("10.0.0.2:80") // its lease ran out
	waitState(t, h, registry.Pending)
	if h.Err() == nil {
		t.Error("no error while cut off")
	}
	link.Cut(false)
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	waitState(t, h, registry.Registered)
}

func TestRegisterKeyRemoved(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	r := open(t, s.Endpoint(), nil)
	const key = prefix + "/compute/n@10.0.0.1:80"
	waitState(t, r.Register(at("10.0.0.1:80", 0)), registry.Registered)

	for name, remove := range map[string]func(){
		"deleted by hand": func() {
			if _, err := client.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		},
		"lease revoked by hand": func() {
			resp, err := client.Get(ctx, key)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatal(resp, err)
			}
			if _, err := client.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		puts := client.Watch(ctx, key, clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
		<-puts
		remove()
		if ev := <-puts; ev.Err() != nil || len(ev.Events) == 0 {
			t.Fatalf("%s: not put again: %+v", name, ev)
		}
	}
}

// A node that restarts finds the key of its predecessor. Neither the drain of the
// predecessor nor the end of its lease may remove the key.
func TestRegisterSuccessor(t *testing.T) {
	type predecessor struct {
		etcd   *clientv3.Client
		r      *etcd.Registry
		handle registry.Handle
		lease  clientv3.LeaseID
	}
	ends := map[string]func(ctx context.Context, p predecessor) error{
		"drain": func(ctx context.Context, p predecessor) error { return p.handle.Close(ctx) },
		"crash": func(ctx context.Context, p predecessor) error {
			p.r.Close()
			_, err := p.etcd.Revoke(ctx, p.lease) // for etcd the same as the end of the lease
			return err
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := startEtcd(t, lab.EtcdOptions{})
			ctx, client := raw(t, s)
			first, second, consumer := open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil)
			old := first.Register(at("10.0.0.1:80", 1))
			waitState(t, old, registry.Registered)
			key, err := client.Get(ctx, prefix+"/compute/n@10.0.0.1:80")
			if err != nil || len(key.Kvs) != 1 {
				t.Fatal(key, err)
			}
			got := registrytest.Watch(t, consumer, "compute")
			got.WaitAddrs("10.0.0.1:80")

			second.Register(at("10.0.0.1:80", 2))
			got.Wait("the successor's value", func(s *registry.Snapshot) bool { return s.Endpoints[0].Weight == 2 })
			gone := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithRev(key.Header.Revision))
			lease := clientv3.LeaseID(key.Kvs[0].Lease)
			if err := end(ctx, predecessor{client, first, old, lease}); err != nil {
				t.Fatal(err)
			}
			if ttl, err := client.TimeToLive(ctx, lease); err != nil || ttl.TTL != -1 {
				t.Fatalf("the predecessor's lease has not ended: %+v, %v", ttl, err)
			}
			select {
			case ev := <-gone:
				t.Fatalf("the key was removed: %+v", ev)
			default:
			}
			if now, err := client.Get(ctx, prefix+"/compute/n@10.0.0.1:80"); err != nil || len(now.Kvs) != 1 {
				t.Fatalf("after the end of the predecessor: %v, %v", now, err)
			}
			got.Always("10.0.0.1:80")
		})
	}
}

// TestYield checks that a yielded key stays and is not put again until Restore. The end
// of its lease takes nothing from a successor.
func TestYield(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	first, second, consumer := open(t, s.Endpoint(), renewsSoon), open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil)
	got := registrytest.Watch(t, consumer, "compute")
	old := first.Register(at("10.0.0.1:80", 1))
	got.WaitAddrs("10.0.0.1:80")
	waitState(t, old, registry.Registered)

	key := prefix + "/compute/n@10.0.0.1:80"
	was, err := client.Get(ctx, key)
	if err != nil || len(was.Kvs) != 1 {
		t.Fatal(was, err)
	}
	lease := clientv3.LeaseID(was.Kvs[0].Lease)
	old.Yield()
	renewed := client.Watch(ctx, key, clientv3.WithRev(was.Header.Revision+1))
	if _, err := client.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if ev := (<-renewed).Events; len(ev) != 1 || ev[0].Type != clientv3.EventTypeDelete {
		t.Fatalf("events %+v", ev)
	}
	// The lease is kept alive, and with it a key that no successor has put.
	awaitRenewal(ctx, t, client, lease)
	select {
	case resp := <-renewed:
		t.Fatalf("put again after it was yielded: %+v", resp.Events)
	default:
	}

	old.Restore()
	if ev := (<-renewed).Events; len(ev) != 1 || ev[0].Type != clientv3.EventTypePut || clientv3.LeaseID(ev[0].Kv.Lease) != lease {
		t.Fatalf("restored: %+v", ev)
	}
	old.Yield()
	waitState(t, second.Register(at("10.0.0.1:80", 2)), registry.Registered)
	if err := old.Close(ctx); err != nil {
		t.Error(err)
	}
	if ttl, err := client.TimeToLive(ctx, lease); err != nil || ttl.TTL != -1 {
		t.Errorf("the lease has not ended: %+v, %v", ttl, err)
	}
	if now, err := client.Get(ctx, key); err != nil || len(now.Kvs) != 1 || clientv3.LeaseID(now.Kvs[0].Lease) == lease {
		t.Errorf("after the end of the one before: %+v, %v", now, err)
	}
}

// Of two running processes, the later one owns the key. When it withdraws, the earlier
// one puts its value again.
func TestRegisterTwin(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	first, second, consumer := open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil), open(t, s.Endpoint(), nil)
	got := registrytest.Watch(t, consumer, "compute")
	first.Register(at("10.0.0.1:80", 1))
	got.WaitAddrs("10.0.0.1:80")
	h := second.Register(at("10.0.0.1:80", 2))
	got.Wait("the second's value", func(s *registry.Snapshot) bool { return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == 2 })
	h.Withdraw()
	got.Wait("the first's value", func(s *registry.Snapshot) bool { return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == 1 })
}

func TestRegisterInvalid(t *testing.T) {
	r := open(t, "127.0.0.1:1", nil)
	for name, reg := range map[string]registry.Registration{
		"no port":            {Service: "s", Node: "n", Addr: "10.0.0.1"},
		"no address":         {Service: "s", Node: "n"},
		"unspecified":        {Service: "s", Node: "n", Addr: "0.0.0.0:80"},
		"no node":            {Service: "s", Addr: "10.0.0.1:80"},
		"slash in node":      {Service: "s", Node: "a/b", Addr: "10.0.0.1:80"},
		"no service":         {Node: "n", Addr: "10.0.0.1:80"},
		"slash ends service": {Service: "s/", Node: "n", Addr: "10.0.0.1:80"},
		"protocol":           {Service: "s", Node: "n", Addr: "10.0.0.1:80", Protocol: "smtp"},
		"negative weight":    {Service: "s", Node: "n", Addr: "10.0.0.1:80", Weight: -1},
		"too great a weight": {Service: "s", Node: "n", Addr: "10.0.0.1:80", Weight: registry.MaxWeight + 1},
	} {
		h := r.Register(reg)
		if h.State() != registry.Failed || h.Err() == nil {
			t.Errorf("%s: %v, %v", name, h.State(), h.Err())
		}
		h.Withdraw()
		h.Restore()
		if err := h.Close(context.Background()); err != nil || h.State() != registry.Failed {
			t.Errorf("%s: closed: %v, %v", name, h.State(), err)
		}
	}
}

func TestCloseWithoutEtcd(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	r := open(t, s.Endpoint(), nil)
	never, known := r.Register(at("10.0.0.1:80", 0)), r.Register(at("10.0.0.2:80", 0))
	waitState(t, known, registry.Registered)
	waitState(t, never, registry.Registered)
	s.Close()

	known.Withdraw() // returns although it can't succeed
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := known.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with etcd down: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := never.Close(context.Background()); !errors.Is(err, etcd.ErrClosed) {
		t.Errorf("Close after the Registry's: %v", err)
	}
	if h := r.Register(at("10.0.0.3:80", 0)); h.State() != registry.Closed || !errors.Is(h.Err(), etcd.ErrClosed) {
		t.Errorf("Register after Close: %v, %v", h.State(), h.Err())
	}
	r.Watch("compute", func(*registry.Snapshot) { t.Error("notified after Close") })()
}

func TestPassword(t *testing.T) {
	dir := t.TempDir()
	s := startEtcd(t, lab.EtcdOptions{Dir: dir})
	ctx, client := raw(t, s)
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	addr := s.Addr()
	s.Close()

	// With a password, making the client needs etcd. It must not delay New.
	r := open(t, "http://"+addr, func(o *etcd.Options) { o.Username, o.Password = "root", "secret" })
	got := registrytest.Watch(t, r, "compute")
	h := r.Register(at("10.0.0.1:80", 0))
	s = startEtcd(t, lab.EtcdOptions{Dir: dir, ClientAddr: addr})
	got.WaitAddrs("10.0.0.1:80")
	waitState(t, h, registry.Registered)

	// Tokens do not survive a restart of etcd.
	s.Close()
	eventually.True(t, "notice of the outage", func() bool { return !r.Stats().Connected })
	startEtcd(t, lab.EtcdOptions{Dir: dir, ClientAddr: addr})
	r.Register(at("10.0.0.2:80", 0))
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
}

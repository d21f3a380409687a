package etcd_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

func put(t *testing.T, ctx context.Context, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	resp, err := c.Put(ctx, prefix+"/"+key, value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

func TestWatchChanges(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	r := open(t, s.Endpoint(), nil)
	put(t, ctx, client, "a/n@x", `{"Op":0,"Addr":"10.0.0.1:80"}`)
	put(t, ctx, client, "a/b/n@x", `{"Op":0,"Addr":"10.0.0.9:80"}`)
	a, nested := registrytest.Watch(t, r, "a"), registrytest.Watch(t, r, "a/b")
	a.WaitAddrs("10.0.0.1:80") // without the endpoint of a/b
	nested.WaitAddrs("10.0.0.9:80")

	put(t, ctx, client, "a/m@x", `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"weight":5}}`)
	a.Wait("the later of two keys with one address", func(s *registry.Snapshot) bool {
		return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == 5
	})
	if _, err := client.Delete(ctx, prefix+"/a/m@x"); err != nil {
		t.Fatal(err)
	}
	a.Wait("the earlier again", func(s *registry.Snapshot) bool { return len(s.Endpoints) == 1 && s.Endpoints[0].Weight == 1 })

	before := len(a.History())
	put(t, ctx, client, "a/n@x", `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{}}`) // no change
	put(t, ctx, client, "a/o@x", `{"Op":0,"Addr":"10.0.0.2:80"}`)
	a.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	if n := len(a.History()) - before; n != 1 {
		t.Errorf("%d snapshots for one change", n)
	}
	a.Stop()
	a.Stop()
	if len(nested.History()) != 1 {
		t.Errorf("changes of another service were delivered: %s", registrytest.Describe(nested.History()))
	}
}

func TestGarbageIsLeftOut(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	book := &logCounter{}
	r := open(t, s.Endpoint(), logTo(book))
	bad := []string{
		``, `garbage`, `[]`, `{"Op":1,"Addr":"10.0.0.1:80"}`, `{"Op":0}`, `{"Op":0,"Addr":"10.0.0.1"}`,
		`{"Op":0,"Addr":"10.0.0.1:0"}`, `{"Op":0,"Addr":"10.0.0.1:99999"}`, `{"Op":0,"Addr":"0.0.0.0:80"}`,
		`{"Op":0,"Addr":"10.0.0.300:80"}`, `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"weight":"x"}}`,
		`{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"weight":-1}}`, `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"protocol":"smtp"}}`,
	}
	for i, v := range bad {
		put(t, ctx, client, "s/"+string(rune('a'+i)), v)
	}
	put(t, ctx, client, "s/good", `{"Op":0,"Addr":"10.0.0.2:80","Metadata":{"weight":7,"zone":"z","protocol":"http","node":"n","more":[1]}}`)
	got := registrytest.Watch(t, r, "s")
	snap := got.WaitAddrs("10.0.0.2:80")
	if e := snap.Endpoints[0]; e != (registry.Endpoint{Addr: "10.0.0.2:80", Weight: 7, Zone: "z", Protocol: "http", Node: "n"}) {
		t.Errorf("got %+v", e)
	}
	expect := func(unusable int) {
		t.Helper()
		if n := r.Condition().Unusable; n != unusable {
			t.Errorf("%d values can't be used, want %d", n, unusable)
		}
	}
	expect(len(bad))
	put(t, ctx, client, "s/a", `still garbage`)
	put(t, ctx, client, "s/b", `{"Op":0,"Addr":"10.0.0.3:80"}`) // valid now
	put(t, ctx, client, "s/good", `now garbage`)
	got.WaitAddrs("10.0.0.3:80")
	expect(len(bad)) // one less, one more
	if n := book.count("value in etcd is invalid, ignored"); n != len(bad)+1 {
		t.Errorf("logged %d times, want once per key: %d", n, len(bad)+1)
	}
}

func TestWatchEtcdRestart(t *testing.T) {
	dir := t.TempDir()
	s := startEtcd(t, lab.EtcdOptions{Dir: dir})
	addr := s.Addr()
	ctx, client := raw(t, s)
	// The process that stays notices at its next renewal that its lease is gone.
	consumer, stays, goes := open(t, s.Endpoint(), brief), open(t, s.Endpoint(), renewsSoon), open(t, s.Endpoint(), nil)
	for range 20 { // a revision that an empty etcd does not reach
		put(t, ctx, client, "other/key", `x`)
	}
	put(t, ctx, client, "compute/bad", `garbage`)
	h := stays.Register(at("10.0.0.1:80", 0))
	h2 := goes.Register(at("10.0.0.2:80", 0))
	waitState(t, h, registry.Registered)
	waitState(t, h2, registry.Registered)
	got := registrytest.Watch(t, consumer, "compute")
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")

	// With its data: nothing changes, and changes are still seen.
	s.Close()
	s = startEtcd(t, lab.EtcdOptions{Dir: dir, ClientAddr: addr})
	waitState(t, h, registry.Registered)
	h3 := stays.Register(at("10.0.0.3:80", 0))
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	if err := h3.Close(ctx); err != nil {
		t.Fatal(err)
	}
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	if n := consumer.Stats().DataLosses; n != 0 {
		t.Errorf("%d losses of data, want none", n)
	}
	if n := consumer.Condition().Unusable; n != 1 {
		t.Errorf("%d values can't be used, want 1", n)
	}

	// Without its data: a node that registers again is never missing, others are
	// dropped later.
	s.Close()
	goes.Close()
	startEtcd(t, lab.EtcdOptions{ClientAddr: addr})
	got.WaitAddrs("10.0.0.1:80")
	waitState(t, h, registry.Registered)
	if n := consumer.Stats().DataLosses; n == 0 {
		t.Error("the loss of data was not noticed")
	}
	if n := consumer.Condition().Unusable; n != 0 {
		t.Errorf("%d values can't be used, want none: etcd has lost the bad value", n)
	}
	stays.Register(at("10.0.0.4:80", 0))
	got.WaitAddrs("10.0.0.1:80", "10.0.0.4:80")
	got.Always("10.0.0.1:80")
}

func TestWatchCompaction(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	ctx, client := raw(t, s)
	link := cutlink.To(t, s.Addr())
	r := open(t, link.Addr(), nil)
	put(t, ctx, client, "s/1", `{"Op":0,"Addr":"10.0.0.1:80"}`)
	got := registrytest.Watch(t, r, "s")
	got.WaitAddrs("10.0.0.1:80")
	lists := r.Stats().Lists

	link.Cut(true)
	var last int64
	for range 10 {
		last = put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.2:80"}`)
	}
	if _, err := client.Delete(ctx, prefix+"/s/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, last+1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	link.Cut(false)
	got.WaitAddrs("10.0.0.2:80")
	if r.Stats().Lists == lists {
		t.Error("not listed again: the compaction did not affect the watch")
	}
	put(t, ctx, client, "s/3", `{"Op":0,"Addr":"10.0.0.3:80"}`)
	got.WaitAddrs("10.0.0.2:80", "10.0.0.3:80")
}

func TestColdStart(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	s := startEtcd(t, lab.EtcdOptions{Dir: dir})
	addr := s.Addr()
	ctx, client := raw(t, s)
	withCache := func(o *etcd.Options) { o.CacheDir = cache }
	put(t, ctx, client, "s/1", `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"weight":3,"zone":"z"}}`)
	first := open(t, s.Endpoint(), withCache)
	known := registrytest.Watch(t, first, "s").WaitAddrs("10.0.0.1:80")
	first.Close()
	s.Close()

	r := open(t, "http://"+addr, withCache)
	got := registrytest.Watch(t, r, "s")
	snap := got.WaitAddrs("10.0.0.1:80")
	if snap.Source != registry.SourceCache || snap.Endpoints[0] != known.Endpoints[0] || !snap.Changed.Equal(known.Changed) {
		t.Errorf("from the cache: %+v, stored: %+v", snap, known)
	}
	// The cache does not wait for the client, which needs a token of etcd first.
	named := open(t, "http://"+addr, func(o *etcd.Options) { o.CacheDir, o.Username, o.Password = cache, "root", "secret" })
	registrytest.Watch(t, named, "s").WaitAddrs("10.0.0.1:80")
	// Another registry's cache is not used, nor is a damaged one.
	strange := registrytest.Watch(t, open(t, "http://"+addr, func(o *etcd.Options) { o.CacheDir, o.Prefix = cache, "/elsewhere" }), "s")
	damaged := t.TempDir()
	must.WriteFile(t, filepath.Join(damaged, "s.json"), `{"service":"s","endpo`)
	broken := registrytest.Watch(t, open(t, "http://"+addr, func(o *etcd.Options) { o.CacheDir = damaged }), "s")

	s = startEtcd(t, lab.EtcdOptions{Dir: dir, ClientAddr: addr})
	live := func(s *registry.Snapshot) bool { return s.Source == registry.SourceLive }
	if snap := got.Wait("live", live); len(snap.Endpoints) != 1 || !snap.Changed.Equal(known.Changed) {
		t.Errorf("live: %+v", snap)
	}
	broken.Wait("live", live)
	strange.Wait("live", live)
	for _, s := range []*registrytest.Sink{strange, broken} {
		if s.History()[0].Source != registry.SourceLive {
			t.Errorf("the cache was used: %s", registrytest.Describe(s.History()))
		}
	}
	put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.2:80"}`)
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")

	// Everything restarts, etcd without its data: the cached endpoints stay until a
	// node has registered.
	r.Close()
	s.Close()
	startEtcd(t, lab.EtcdOptions{ClientAddr: addr})
	kept := registrytest.Watch(t, open(t, "http://"+addr, func(o *etcd.Options) { withCache(o); brief(o) }), "s")
	kept.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	open(t, "http://"+addr, nil).Register(registry.Registration{Service: "s", Node: "n", Addr: "10.0.0.2:80"})
	kept.WaitAddrs("10.0.0.2:80")
	kept.Always("10.0.0.2:80")
}

func TestWatchHostNames(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	r := open(t, s.Endpoint(), func(o *etcd.Options) {
		o.DNS.Lookup = func(_ context.Context, host string) (dns.Answer, error) {
			return dns.Answer{Addrs: []netip.Addr{netip.MustParseAddr("10.1.1.1")}}, nil
		}
	})
	r.Register(at("replica-1:80", 0))
	snap := registrytest.Watch(t, r, "compute").WaitAddrs("10.1.1.1:80")
	if snap.Revision == 0 {
		t.Error("no revision")
	}
	if snap.Endpoints[0].Host != "replica-1" {
		t.Errorf("got %+v", snap.Endpoints[0])
	}
	var log logCounter
	unresolved := open(t, s.Endpoint(), func(o *etcd.Options) {
		logTo(&log)(o)
		o.DNS.Lookup = func(context.Context, string) (dns.Answer, error) { return dns.Answer{}, errors.New("no such host") }
	})
	registrytest.Watch(t, unresolved, "compute").WaitAddrs()
	if log.count("host name does not resolve; its last addresses stay in use") == 0 {
		t.Error("the log lacks the name that does not resolve")
	}
}

func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.WriteFile(t, file, "")
	for name, opt := range map[string]etcd.Options{
		"no endpoint":    {},
		"empty endpoint": {Endpoints: []string{""}},
		"short lease":    {Endpoints: []string{"127.0.0.1:1"}, LeaseTTL: 1},
		"negative grace": {Endpoints: []string{"127.0.0.1:1"}, Grace: -1},
		"cache dir":      {Endpoints: []string{"127.0.0.1:1"}, CacheDir: file},
	} {
		if r, err := etcd.New(opt); err == nil {
			r.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

// After a loss of data, an endpoint stays until its node has registered again: here the
// lease is so long that the endpoint must stay.
func TestDataLossKeepsEndpoints(t *testing.T) {
	s := startEtcd(t, lab.EtcdOptions{})
	addr := s.Addr()
	ctx, client := raw(t, s)
	consumer := open(t, s.Endpoint(), func(o *etcd.Options) { o.LeaseTTL = time.Hour })
	for _, k := range []string{"1", "2"} {
		put(t, ctx, client, "s/"+k, `{"Op":0,"Addr":"10.0.0.`+k+`:80"}`)
	}
	got := registrytest.Watch(t, consumer, "s")
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	s.Close()
	startEtcd(t, lab.EtcdOptions{ClientAddr: addr})
	eventually.True(t, "notice of the loss", func() bool { return consumer.Stats().DataLosses == 1 })

	put(t, ctx, client, "s/3", `{"Op":0,"Addr":"10.0.0.3:80"}`)
	got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	put(t, ctx, client, "s/2", `{"Op":0,"Addr":"10.0.0.2:80"}`)
	if _, err := client.Delete(ctx, prefix+"/s/2"); err != nil { // registered again, and removed
		t.Fatal(err)
	}
	got.WaitAddrs("10.0.0.1:80", "10.0.0.3:80")
	got.Always("10.0.0.1:80")
}

package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/registrytest"
)

const hello = "demo.Hello"

// text describes endpoints: address, weight and protocol.
func text(all []registry.Endpoint) string {
	var parts []string
	for _, e := range all {
		parts = append(parts, fmt.Sprintf("%s*%d %s", e.Addr, e.Weight, e.Protocol))
	}
	return strings.Join(parts, ", ")
}

// TestProviders: which records of the interface level a service uses, and how.
func TestProviders(t *testing.T) {
	for name, c := range map[string]struct {
		of        Service
		providers []string
		overrides []string
		want      string
	}{
		"one": {Service{}, []string{"dubbo://10.0.0.1:1/a?x=1"}, nil, "10.0.0.1:1*1 dubbo"},
		"without a group and a version": {
			Service{}, []string{"dubbo://10.0.0.1:1/a", "dubbo://10.0.0.2:1/a?group=g", "dubbo://10.0.0.3:1/a?version=1", "dubbo://10.0.0.4:1/a?version=0.0.0"}, nil,
			"10.0.0.1:1*1 dubbo, 10.0.0.4:1*1 dubbo"},
		"a group and a version": {
			Service{Group: "g", Version: "1"}, []string{"dubbo://10.0.0.1:1/a", "dubbo://10.0.0.2:1/a?group=g&version=1", "dubbo://10.0.0.3:1/a?group=g"}, nil,
			"10.0.0.2:1*1 dubbo"},
		"all groups": {
			Service{Group: "*", Version: "1,2"}, []string{"dubbo://10.0.0.1:1/a?version=1", "dubbo://10.0.0.2:1/a?group=g&version=2", "dubbo://10.0.0.3:1/a?version=3"}, nil,
			"10.0.0.1:1*1 dubbo, 10.0.0.2:1*1 dubbo"},
		"Triple": {
			Service{Scheme: "tri", Protocol: "grpc"}, []string{"dubbo://10.0.0.1:1/a", "tri://10.0.0.1:2/a"}, nil, "10.0.0.1:2*1 grpc"},
		"weights": {Service{}, []string{"dubbo://10.0.0.1:1/a?weight=50", "dubbo://10.0.0.2:1/a", "dubbo://10.0.0.3:1/a?weight=150"}, nil, "10.0.0.1:1*1 dubbo, 10.0.0.2:1*2 dubbo, 10.0.0.3:1*3 dubbo"},
		"heavy": {
			Service{}, []string{"dubbo://10.0.0.1:1/a?weight=100000", "dubbo://10.0.0.2:1/a?weight=50000"}, nil, "10.0.0.1:1*2 dubbo, 10.0.0.2:1*1 dubbo"},
		"weight 0": {
			Service{}, []string{"dubbo://10.0.0.1:1/a?weight=0", "dubbo://10.0.0.2:1/a"}, nil, "10.0.0.2:1*1 dubbo"},
		"all of weight 0": {
			Service{}, []string{"dubbo://10.0.0.1:1/a?weight=0", "dubbo://10.0.0.2:1/a?weight=0"}, nil, "10.0.0.1:1*1 dubbo, 10.0.0.2:1*1 dubbo"},
		"disabled": {
			Service{}, []string{"dubbo://10.0.0.1:1/a?disabled=true", "dubbo://10.0.0.2:1/a"}, nil, "10.0.0.2:1*1 dubbo"},
		"malformed": {
			Service{}, []string{"what", "dubbo://10.0.0.1:1/a"}, nil, "10.0.0.1:1*1 dubbo"},
		"overrides": {
			Service{}, []string{"dubbo://10.0.0.1:1/a", "dubbo://10.0.0.2:1/a", "dubbo://10.0.0.3:1/a", "dubbo://10.0.0.4:2/a"},
			[]string{
				"override://0.0.0.0/a?category=configurators&dynamic=false&weight=200", "override://10.0.0.1:1/a?weight=50",
				"override://10.0.0.2:1/a?disabled=true", "absent://10.0.0.3:1/a?weight=1&application=*",
				"override://10.0.0.3:1/a?disabled=true&enabled=false", "override://10.0.0.3:1/a?disabled=true&application=other",
				"override://10.9.9.9/a?disabled=true", "override://10.0.0.3:1/a?disabled=true&version=7", "override://0.0.0.0:2/a?weight=100", "route://0.0.0.0/a?rule=x", "?",
			},
			"10.0.0.1:1*1 dubbo, 10.0.0.3:1*4 dubbo, 10.0.0.4:2*2 dubbo"},
		"enabled by an override": {
			Service{}, []string{"dubbo://10.0.0.1:1/a?enabled=false"}, []string{"override://10.0.0.1:1/a?disabled=false"}, "10.0.0.1:1*1 dubbo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			for _, o := range c.overrides {
				s.set(strings.Replace(providerPath("a", o), "/providers/", "/configurators/", 1), "")
			}
			for _, p := range c.providers {
				s.set(providerPath("a", p), "127.0.0.1")
			}
			c.of.Interface = "a"
			snap := registrytest.Watch(t, s.open(as(c.of)), "any").Wait("the endpoints", func(snap *registry.Snapshot) bool { return len(snap.Endpoints) > 0 })
			if got := text(snap.Endpoints); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// instanceData returns the data of an instance with a Dubbo and a Triple port.
func instanceData(host, revision string, port int) string {
	return fmt.Sprintf(`{"name":"app","id":"%[1]s:%[3]d","address":%[1]q,"port":%[3]d,"payload":{"metadata":{"dubbo.metadata.revision":%[2]q,
		"dubbo.endpoints":"[{\"port\":%[3]d,\"protocol\":\"dubbo\"},{\"port\":50051,\"protocol\":\"tri\"}]"}},"serviceType":"DYNAMIC"}`, host, revision, port)
}

// TestInstances: which instances of applications a service uses, as records of the application level come and go.
func TestInstances(t *testing.T) {
	s := newStore(t)
	r := s.open(nil)
	w := registrytest.Watch(t, r, hello)
	triple := registrytest.Watch(t, s.open(as(Service{Interface: hello, Scheme: "tri"})), hello)
	named := registrytest.Watch(t, s.open(as(Service{Interface: hello, Applications: []string{"other"}})), hello)
	w.WaitAddrs()

	s.set("/services/app/one", instanceData("10.0.0.1", "r1", 20880))
	s.set("/services/other/three", instanceData("10.0.0.3", "", 20880))
	named.WaitAddrs("10.0.0.3:20880")
	s.set("/dubbo/mapping/"+hello, "app, none")
	w.WaitAddrs("10.0.0.1:20880")
	triple.WaitAddrs("10.0.0.1:50051")
	s.set("/services/app/two", instanceData("10.0.0.2", "0", 20881))
	w.WaitAddrs("10.0.0.1:20880", "10.0.0.2:20881")
	s.set("/dubbo/mapping/"+hello, "app,none,other,app")
	w.WaitAddrs("10.0.0.1:20880", "10.0.0.2:20881", "10.0.0.3:20880")
	s.set("/services/app/two", instanceData("10.0.0.2", "0", 20882))
	w.WaitAddrs("10.0.0.1:20880", "10.0.0.2:20882", "10.0.0.3:20880")
	s.set("/services/app/two", "not JSON")
	w.WaitAddrs("10.0.0.1:20880", "10.0.0.3:20880")
	s.delete("/services/app/two")

	// The interface level decides about an address that it has.
	disabled := providerPath(hello, "dubbo://10.0.0.1:20880/a?disabled=true")
	s.set(disabled, "")
	w.WaitAddrs("10.0.0.3:20880")
	s.set(providerPath(hello, "dubbo://10.0.0.9:20880/a"), "")
	w.WaitAddrs("10.0.0.3:20880", "10.0.0.9:20880")
	s.delete(disabled)
	w.WaitAddrs("10.0.0.1:20880", "10.0.0.3:20880", "10.0.0.9:20880")

	// The metadata of a revision say whether the instance has the interface, and where.
	s.set("/dubbo/metadata/app/r1", `{"app":"app","revision":"r1","services":{"x":{"name":"demo.Other","protocol":"dubbo","port":20880}}}`)
	w.WaitAddrs("10.0.0.3:20880", "10.0.0.9:20880")
	s.set("/dubbo/metadata/app/r1", `{"app":"app","revision":"r1","services":{
		"g/demo.Hello":{"name":"demo.Hello","group":"g","protocol":"dubbo","port":1},
		"demo.Hello::dubbo":{"name":"demo.Hello","protocol":"dubbo","params":{"weight":"300"}},
		"demo.Hello::tri":{"name":"demo.Hello","protocol":"tri","port":50052}}}`)
	snap := w.WaitAddrs("10.0.0.1:20880", "10.0.0.3:20880", "10.0.0.9:20880")
	if got, want := text(snap.Endpoints), "10.0.0.1:20880*3 dubbo, 10.0.0.3:20880*1 dubbo, 10.0.0.9:20880*1 dubbo"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	triple.WaitAddrs("10.0.0.1:50052", "10.0.0.3:50051")
	s.delete("/services/app/one")
	w.WaitAddrs("10.0.0.3:20880", "10.0.0.9:20880")
	s.delete("/dubbo/mapping/" + hello)
	w.WaitAddrs("10.0.0.9:20880")
	r.mirror.mu.Lock()
	defer r.mirror.mu.Unlock()
	if n := len(r.mirror.entries); n != 3 {
		t.Errorf("%d nodes are followed: more than the providers, the configurators and the mapping", n)
	}
}

// TestMalformedRecords: records that can't be used are told once, and never take the endpoints of a service.
func TestMalformedRecords(t *testing.T) {
	s := newStore(t)
	var log said
	good := providerPath(hello, "dubbo://10.0.0.1:1/a")
	s.set(good, "")
	r := s.open(logTo(&log))
	w := registrytest.Watch(t, r, hello)
	w.WaitAddrs("10.0.0.1:1")
	for i := range 5 {
		s.set(providerPath(hello, fmt.Sprintf("tri://10.0.1.%d:1/a", i+1)), "")
	}
	s.set("/dubbo/"+hello+"/providers/broken1", "")
	s.delete(good)
	eventually.True(t, "the warning", func() bool { return log.count("can't be used") > 0 })
	s.set("/dubbo/"+hello+"/providers/broken2", "")
	eventually.True(t, "the second warning", func() bool { return log.count("malformed=2") == 1 })
	if n := r.Condition().Unusable; n != 2 {
		t.Errorf("%d records can't be used, want 2", n)
	}
	if text := "example=broken1"; log.count(text) == 0 || log.count("other_protocols=map[tri:5]") == 0 {
		t.Errorf("the log lacks something: %s", log.String())
	}
	w.Always("10.0.0.1:1")
	var another said // of a sidecar that knows none of the records that made sense
	w2 := registrytest.Watch(t, s.open(logTo(&another)), hello)
	w2.WaitAddrs()
	if another.count("malformed=2") != 1 {
		t.Errorf("the log lacks the warning: %s", another.String())
	}
	s.set(good, "")
	s.set(providerPath(hello, "dubbo://10.0.0.2:1/a"), "")
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	s.delete(good)
	w.WaitAddrs("10.0.0.2:1")
	w2.WaitAddrs("10.0.0.2:1")
}

// TestLogOfNames: the log has names that don't resolve.
func TestLogOfNames(t *testing.T) {
	s := newStore(t)
	s.set(providerPath(hello, "dubbo://replica.test:1/a"), "")
	var log said
	r := s.open(all(logTo(&log), func(o *Options) {
		o.DNS.Lookup = func(context.Context, string) (dns.Answer, error) { return dns.Answer{}, errors.New("no such host") }
	}))
	registrytest.Watch(t, r, hello).WaitAddrs()
	if log.count("host name does not resolve") == 0 {
		t.Errorf("the log has %s", log.String())
	}
}

// TestMalformedAfterRestart: a sidecar that finds only malformed records at its start uses the cache.
func TestMalformedAfterRestart(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	cached := func(o *Options) { o.CacheDir = dir }
	good := providerPath(hello, "dubbo://10.0.0.1:1/a")
	s.set(good, "")
	r := s.make(s.addr, grace, cached)
	registrytest.Watch(t, r, hello).WaitAddrs("10.0.0.1:1")
	r.Close()
	s.delete(good)
	s.set("/dubbo/"+hello+"/providers/broken", "")
	var log said
	w := registrytest.Watch(t, s.open(all(cached, logTo(&log))), hello)
	eventually.True(t, "the warning", func() bool { return log.count("malformed=1") == 1 })
	w.WaitAddrs("10.0.0.1:1")
	w.Always("10.0.0.1:1")
}

// TestHoldCache: after a start with the cache, its endpoints stay until those that live have come back.
func TestHoldCache(t *testing.T) {
	s := newStore(t)
	link := cutlink.To(t, s.addr)
	dir := t.TempDir()
	cached := func(o *Options) { o.CacheDir = dir }
	provider := func(i int) string { return providerPath(hello, fmt.Sprintf("dubbo://10.0.0.%d:1/a", i)) }
	s.set(provider(1), "")
	s.set(provider(2), "")
	r := s.make(link.Addr(), grace, cached)
	registrytest.Watch(t, r, hello).WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	r.Close()

	link.Cut(true)
	w := registrytest.Watch(t, s.openAt(link.Addr(), grace, cached), hello)
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	s.delete(provider(1))
	s.delete(provider(2))
	s.set(provider(3), "")
	link.Cut(false)
	snap := w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	if got, want := text(snap.Endpoints), "10.0.0.1:1*1 dubbo, 10.0.0.2:1*1 dubbo, 10.0.0.3:1*1 dubbo"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	w.Always("10.0.0.1:1")
}

// TestCacheAtStart: also if ZooKeeper responds at once, the endpoints of the cache stay until those that live have come back.
func TestCacheAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		back []int // providers that ZooKeeper has at the start
		want []string
	}{
		"none is back":     {nil, []string{"10.0.0.1:1", "10.0.0.2:1"}},
		"one is back":      {[]int{2}, []string{"10.0.0.1:1", "10.0.0.2:1"}},
		"another has come": {[]int{3}, []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			dir := t.TempDir()
			cached := func(o *Options) { o.CacheDir = dir }
			provider := func(i int) string { return providerPath(hello, fmt.Sprintf("dubbo://10.0.0.%d:1/a", i)) }
			s.set(provider(1), "")
			s.set(provider(2), "")
			r := s.make(s.addr, grace, cached)
			registrytest.Watch(t, r, hello).WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
			r.Close()

			s.delete(provider(1))
			s.delete(provider(2))
			for _, i := range c.back {
				s.set(provider(i), "")
			}
			w := registrytest.Watch(t, s.openAt(s.addr, grace, cached), hello)
			w.Wait("a list of ZooKeeper", func(snap *registry.Snapshot) bool { return snap.Source == registry.SourceLive })
			w.WaitAddrs(c.want...)
			w.Always("10.0.0.1:1")
			w.Always("10.0.0.2:1")
		})
	}
}

// TestForeignCache: the cache of another ZooKeeper, or of another service by the same name, is not used.
func TestForeignCache(t *testing.T) {
	s := newStore(t)
	link := cutlink.To(t, s.addr)
	dir := t.TempDir()
	cached := func(o *Options) { o.CacheDir = dir }
	provider := providerPath(hello, "dubbo://10.0.0.1:1/a")
	s.set(provider, "")
	r := s.make(s.addr, grace, cached)
	registrytest.Watch(t, r, hello).WaitAddrs("10.0.0.1:1")
	r.Close()
	s.delete(provider)
	copied := func(o *Options) { // each stores what it has
		o.CacheDir = t.TempDir()
		if err := os.CopyFS(o.CacheDir, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	for name, other := range map[string]*Registry{
		"another address": s.openAt(link.Addr(), grace, copied),
		"another group":   s.open(all(copied, func(o *Options) { o.Group = "other" })),
		"another version": s.open(all(copied, as(Service{Version: "2"}))),
	} {
		if snap := registrytest.Watch(t, other, hello).Wait("a list", func(*registry.Snapshot) bool { return true }); len(snap.Endpoints) > 0 {
			t.Errorf("%s: in use are %s", name, text(snap.Endpoints))
		}
	}
	registrytest.Watch(t, s.open(cached), hello).WaitAddrs("10.0.0.1:1")
}

// TestDefaults: the defaults are those of Dubbo.
func TestDefaults(t *testing.T) {
	r, err := New(Options{Servers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.opt.SessionTimeout != 10*time.Second || r.root != "/dubbo" || r.grace != grace {
		t.Errorf("%v, %s, %v", r.opt.SessionTimeout, r.root, r.grace)
	}
}

// TestCacheIsDropped: endpoints of the cache that ZooKeeper lacks do not stay for ever, and the registry counts them meanwhile.
func TestCacheIsDropped(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStore(t)
	dir := t.TempDir()
	cached := func(o *Options) { o.CacheDir = dir }
	provider := providerPath(hello, "dubbo://10.0.0.1:1/a")
	s.set(provider, "")
	r := s.make(s.addr, grace, cached)
	registrytest.Watch(t, r, hello).WaitAddrs("10.0.0.1:1")
	r.Close()

	s.delete(provider)
	doubting := s.openAt(s.addr, grace, cached)
	registrytest.Watch(t, doubting, hello).Wait("a list of ZooKeeper", func(snap *registry.Snapshot) bool { return snap.Source == registry.SourceLive })
	if now := doubting.Condition(); now.Kept != 1 || now.Doubted != 1 {
		t.Errorf("%d endpoints of %d services are kept", now.Kept, now.Doubted)
	}
	const hold = 300 * time.Millisecond
	believing := s.openAt(s.addr, hold, cached)
	registrytest.Watch(t, believing, hello).WaitAddrs()
	if now := believing.Condition(); now.Kept != 0 || now.Doubted != 0 {
		t.Errorf("in the end %d endpoints of %d services are kept", now.Kept, now.Doubted)
	}
}

// TestMalformedOverride: an override that can't be read is told, and does not keep a service from being empty.
func TestMalformedOverride(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var log said
	s.set("/dubbo/"+hello+"/configurators/broken", "")
	r := s.open(logTo(&log))
	w := registrytest.Watch(t, r, hello)
	w.WaitAddrs()
	if log.count("malformed_overrides=1") != 1 || log.count("malformed=") != 0 {
		t.Errorf("the log has: %s", log.String())
	}
	if n := r.Condition().Unusable; n != 1 {
		t.Errorf("%d records can't be used, want 1", n)
	}
	good := providerPath(hello, "dubbo://10.0.0.1:1/a")
	s.set(good, "")
	w.WaitAddrs("10.0.0.1:1")
	s.delete(good)
	w.WaitAddrs()
}

// TestLargeRecords: what a service mirrors is bounded. Records beyond the bounds are left out, and told.
func TestLargeRecords(t *testing.T) {
	t.Parallel() // it mostly waits
	const app = "/services/app"
	large := strings.Replace(instanceData("10.0.0.2", "", 2), "{", `{"x":"`+strings.Repeat("x", maxData)+`",`, 1)
	for name, c := range map[string]struct {
		fill      func(create func(path, data string))
		endpoints int
		unusable  int
		entries   int    // of the mirror, besides those of one instance
		line      string // in the log
	}{
		"a large instance": {func(create func(path, data string)) { create(app+"/two", large) }, 1, 1, 1, "malformed=1"},
		"large metadata": { // the instance then has the interface at each of its ports
			func(create func(path, data string)) {
				create(app+"/two", instanceData("10.0.0.2", "r", 2))
				create("/dubbo/metadata/app/r", large)
			}, 2, 0, 2, ""},
		"one revision of many": {func(create func(path, data string)) {
			for i := range maxRevisions + 1 {
				create(fmt.Sprint(app, "/", i), instanceData(fmt.Sprintf("10.1.%d.%d", i/200, 1+i%200), "r", 1))
			}
			create("/dubbo/metadata/app/r", `{"services":{}}`)
		}, 1, 0, maxRevisions + 2, ""},
		"too many instances": {func(create func(path, data string)) {
			for i := range maxInstances {
				create(fmt.Sprint(app, "/0", i), "{}")
			}
		}, 0, maxInstances, maxInstances - 1, "instances_at_most="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := zktest.Start(t)
			s := storeAt(t, srv.Addr())
			create := func(path, data string) { srv.Create(s.chroot+path, data) }
			create("/dubbo/mapping/"+hello, "app")
			create(app+"/one", instanceData("10.0.0.1", "", 1))
			c.fill(create)
			var log said
			r := s.open(logTo(&log))
			snap := registrytest.Watch(t, r, hello).Wait("a list", func(*registry.Snapshot) bool { return true })
			if n := len(snap.Endpoints); n != c.endpoints {
				t.Errorf("%d endpoints, want %d", n, c.endpoints)
			}
			if n := r.Condition().Unusable; n != c.unusable {
				t.Errorf("%d records can't be used, want %d", n, c.unusable)
			}
			if log.count(c.line) == 0 {
				t.Errorf("the log lacks %s", c.line)
			}
			r.mirror.mu.Lock()
			defer r.mirror.mu.Unlock()
			if n := len(r.mirror.entries) - 5; n != c.entries { // providers, configurators, mapping, instances, one
				t.Errorf("%d more nodes are followed, want %d", n, c.entries)
			}
			for k, e := range r.mirror.entries {
				if n := len(e.value.data); n > maxData {
					t.Errorf("%s has %d bytes", k.path, n)
				}
			}
		})
	}
}

// TestInstancesStay: another application with as many instances as are read takes no place of those in use.
func TestInstancesStay(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	create := func(path, data string) { srv.Create(s.chroot+path, data) }
	create("/dubbo/mapping/"+hello, "app")
	create("/services/app/one", instanceData("10.0.0.1", "", 1))
	for i := range maxInstances {
		create(fmt.Sprint("/services/0app/", i), "{}")
	}
	var log said
	w := registrytest.Watch(t, s.open(logTo(&log)), hello)
	w.WaitAddrs("10.0.0.1:1")
	s.set("/dubbo/mapping/"+hello, "0app,app")
	eventually.True(t, "the warning", func() bool { return log.count("instances_at_most=") > 0 })
	s.set("/services/app/one", instanceData("10.0.0.2", "", 1))
	w.WaitAddrs("10.0.0.2:1")
	if n := len(w.History()); n != 2 {
		t.Errorf("%d lists", n)
	}
}

// TestSharedNodes: services of one application share what is read of it, and a service that nobody watches is not followed.
func TestSharedNodes(t *testing.T) {
	s := newStore(t)
	r := s.open(nil)
	s.set("/services/app/one", instanceData("10.0.0.1", "", 1))
	var watches []*registrytest.Sink
	for i := range 20 {
		name := fmt.Sprint("demo.S", i)
		s.set("/dubbo/mapping/"+name, "app")
		watches = append(watches, registrytest.Watch(t, r, name))
	}
	for _, w := range watches {
		w.WaitAddrs("10.0.0.1:1")
	}
	count := func() int {
		r.mirror.mu.Lock()
		defer r.mirror.mu.Unlock()
		return len(r.mirror.entries)
	}
	if n := count(); n != 20*3+2 {
		t.Errorf("%d nodes are followed", n)
	}
	for _, w := range watches {
		w.Stop()
	}
	eventually.True(t, "no node to be followed", func() bool { return count() == 0 })
}

// TestManyInstances: more records than are read at a time.
func TestManyInstances(t *testing.T) {
	s := newStore(t)
	const n = 5 * maxReads
	s.set("/dubbo/mapping/"+hello, "app")
	for i := range n {
		s.set(fmt.Sprint("/services/app/", i), instanceData(fmt.Sprintf("10.1.%d.%d", i/200, 1+i%200), fmt.Sprint("r", i%7), 1))
	}
	link := cutlink.To(t, s.addr)
	w := registrytest.Watch(t, s.openAt(link.Addr(), grace, nil), hello)
	w.Wait("all", func(snap *registry.Snapshot) bool { return len(snap.Endpoints) == n })
	link.Cut(true)
	s.delete("/services/app/3")
	link.Cut(false)
	w.Wait("all but one", func(snap *registry.Snapshot) bool { return len(snap.Endpoints) == n-1 })
	for _, snap := range w.History() {
		if len(snap.Endpoints) < n-1 {
			t.Errorf("%d endpoints on the way", len(snap.Endpoints))
		}
	}
}

// TestLostSession: after a lost session, endpoints stay until those that live have come back.
func TestLostSession(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	path := func(i int) string { return s.chroot + providerPath(hello, fmt.Sprintf("dubbo://10.0.0.%d:1/a", i)) }
	for i := range 3 {
		srv.Create(path(i+1), "")
	}
	const hold = 5 * time.Second // a busy machine may stand still for seconds
	w := registrytest.Watch(t, s.openAt(srv.Addr(), hold, brief), hello)
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")

	before := srv.Connections()
	srv.Wipe()
	eventually.True(t, "another session", func() bool { return srv.Connections() > before })
	srv.Create(path(4), "")
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	srv.Create(path(2), "")
	w.WaitAddrs("10.0.0.2:1", "10.0.0.4:1")
	w.Always("10.0.0.2:1")
	for _, snap := range w.History() {
		if n := len(snap.Endpoints); n == 1 {
			t.Errorf("%d endpoint on the way: %s", n, registrytest.Describe(w.History()))
		}
	}
}

// TestDisabledAfterLostSession: what an operator has switched off is not held.
func TestDisabledAfterLostSession(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	create := func(u string) { srv.Create(s.chroot+providerPath(hello, u), "") }
	create("dubbo://10.0.0.1:1/a")
	create("dubbo://10.0.0.2:1/a")
	create("dubbo://10.0.0.3:1/a")
	w := registrytest.Watch(t, s.openAt(srv.Addr(), grace, brief), hello)
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	srv.Wipe()
	create("dubbo://10.0.0.1:1/a?disabled=true")
	w.WaitAddrs("10.0.0.2:1", "10.0.0.3:1")
	create("dubbo://10.0.0.2:1/a?weight=0")
	create("dubbo://10.0.0.4:1/a")
	w.WaitAddrs("10.0.0.3:1", "10.0.0.4:1")
}

// TestUnreadable: a node that may not be read is told, and the endpoints stay until it may be.
func TestUnreadable(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	var log said
	at := s.chroot + "/dubbo/" + hello + "/providers"
	srv.Create(at+"/"+"dubbo:%2F%2F10.0.0.1:1", "")
	w := registrytest.Watch(t, s.open(logTo(&log)), hello)
	w.WaitAddrs("10.0.0.1:1")
	srv.Protect(at, "me:secret")
	srv.Create(at+"/"+"dubbo:%2F%2F10.0.0.2:1", "")
	eventually.True(t, "the warning", func() bool { return log.count("not allowed") > 0 })

	known := s.open(func(o *Options) { o.Username, o.Password = "me", "secret" })
	registrytest.Watch(t, known, hello).WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	if now := known.Condition(); !now.Up || now.Err != nil {
		t.Errorf("%+v", now)
	}
	other := s.open(func(o *Options) { o.Username, o.Password = "me", "guess" })
	registrytest.Watch(t, other, hello)
	eventually.True(t, "to be denied", func() bool {
		now := other.Condition()
		return !now.Up && now.Code == registry.CodeDenied && now.Err != nil && !now.Since.IsZero()
	})
	if len(w.History()) != 1 {
		t.Errorf("%s", registrytest.Describe(w.History()))
	}
	srv.Protect(at, "")
	srv.Drop()
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	eventually.True(t, "to be up again", func() bool { return other.Condition().Up })
}

// TestUnreadableKey: while any node that a service is read from can't be read, its endpoints stay. A start that knows no
// endpoints uses the nodes that can be read.
func TestUnreadableKey(t *testing.T) {
	const (
		noAuth, moved, lost = -102, -118, -4
		services            = "/services/app"
		instance            = services + "/one"
		metadata            = "/dubbo/metadata/app/r1"
	)
	providers := []string{"10.0.0.1:1"}
	for path, c := range map[string]struct {
		code    int32
		atStart []string // is in use
	}{
		"/dubbo/" + hello + "/providers":     {noAuth, []string{"10.0.0.3:2"}},
		"/dubbo/" + hello + "/configurators": {noAuth, []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:2"}},
		"/dubbo/mapping/" + hello:            {moved, providers},
		services:                             {lost, providers},
		instance:                             {noAuth, providers},
		metadata:                             {moved, providers},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			srv := zktest.Start(t)
			s := storeAt(t, srv.Addr())
			create := func(path, data string) { srv.Create(s.chroot+path, data) }
			create(providerPath(hello, "dubbo://10.0.0.1:1/a"), "")
			create(providerPath(hello, "dubbo://10.0.0.2:1/a"), "")
			create(strings.Replace(providerPath(hello, "override://10.0.0.2:1/a?disabled=true"), "/providers/", "/configurators/", 1), "")
			create("/dubbo/mapping/"+hello, "app")
			create(instance, instanceData("10.0.0.3", "r1", 1))
			create(metadata, `{"services":{"x":{"name":"demo.Hello","protocol":"dubbo","port":2}}}`)
			var log said
			w := registrytest.Watch(t, s.open(logTo(&log)), hello)
			w.WaitAddrs("10.0.0.1:1", "10.0.0.3:2")

			srv.Fail(s.chroot+path, c.code)
			srv.Drop()
			eventually.True(t, "the warning", func() bool { return log.count("service can't be read") == 1 })
			start := registrytest.Watch(t, s.open(nil), hello)
			start.WaitAddrs(c.atStart...)
			srv.Fail(s.chroot+path, 0)
			create(providerPath(hello, "dubbo://10.0.0.4:1/a"), "")
			srv.Drop()
			w.WaitAddrs("10.0.0.1:1", "10.0.0.3:2", "10.0.0.4:1")
			start.WaitAddrs("10.0.0.1:1", "10.0.0.3:2", "10.0.0.4:1")
			if len(w.History()) != 2 {
				t.Errorf("%s", registrytest.Describe(w.History()))
			}
		})
	}
}

// TestPartialStart: a start that uses what can be read follows changes. Endpoints of a node that can't be read any more are
// held for a while.
func TestPartialStart(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	instance, providers := s.chroot+"/services/app/one", s.chroot+"/dubbo/"+hello+"/providers"
	create := func(path string) { srv.Create(s.chroot+path, "") }
	create(providerPath(hello, "dubbo://10.0.0.1:1/a"))
	create(providerPath(hello, "dubbo://10.0.0.2:1/a"))
	srv.Create(s.chroot+"/dubbo/mapping/"+hello, "app")
	srv.Create(instance, instanceData("10.0.0.3", "0", 2))
	const noAuth = -102
	srv.Fail(instance, noAuth)
	w := registrytest.Watch(t, s.openAt(srv.Addr(), grace, nil), hello)
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1")
	create(strings.Replace(providerPath(hello, "override://10.0.0.2:1/a?disabled=true"), "/providers/", "/configurators/", 1))
	w.WaitAddrs("10.0.0.1:1")

	srv.Fail(providers, noAuth)
	srv.Fail(instance, 0)
	srv.Drop()
	w.WaitAddrs("10.0.0.3:2")
	all := w.History()
	if before := registrytest.Describe(all[len(all)-2 : len(all)-1]); !strings.Contains(before, "10.0.0.1:1 10.0.0.3:2") {
		t.Errorf("%s", registrytest.Describe(all))
	}
}

// TestUnreadableAfterLostSession: a lost session counts although the records can't be read at first.
func TestUnreadableAfterLostSession(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	path := func(i int) string { return s.chroot + providerPath(hello, fmt.Sprintf("dubbo://10.0.0.%d:1/a", i)) }
	srv.Create(path(1), "")
	srv.Create(path(2), "")
	var log said
	w := registrytest.Watch(t, s.openAt(srv.Addr(), grace, logTo(&log)), hello)
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1")

	dir := s.chroot + "/dubbo/" + hello + "/providers"
	srv.Fail(dir, -102)
	srv.Expire()
	eventually.True(t, "the warning", func() bool { return log.count("service can't be read") == 1 })
	srv.Delete(path(1))
	srv.Delete(path(2))
	srv.Create(path(3), "")
	srv.Fail(dir, 0)
	srv.Drop()
	w.WaitAddrs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
}

// TestCondition: the registry says why it has no connection, and logs it once.
func TestCondition(t *testing.T) {
	s := newStore(t)
	link := cutlink.To(t, s.addr)
	link.Cut(true)
	var log said
	r := s.openAt(link.Addr(), grace, logTo(&log))
	const down, back = "ZooKeeper does not respond", "ZooKeeper responds again"
	eventually.True(t, "the warning", func() bool { return log.count(down) == 1 })
	if now := r.Condition(); now.Up || now.Code != registry.CodeUnreachable || now.Err == nil {
		t.Errorf("without a connection: %+v", now)
	}
	link.Cut(false)
	eventually.True(t, "the end of it", func() bool { return log.count(back) == 1 })
	if now := r.Condition(); !now.Up || now.Code != "" || now.Err != nil {
		t.Errorf("with a connection: %+v", now)
	}
	if log.count(down) != 1 {
		t.Errorf("told %d times", log.count(down))
	}
}

// TestOutages: an outage is logged once for each code, and lasts until a server answers requests: to accept connections is not
// enough.
func TestOutages(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := zktest.Start(t)
	var log said
	r := storeAt(t, srv.Addr()).openAt(srv.Addr(), grace, logTo(&log))
	eventually.True(t, "a connection", func() bool { return r.Condition().Up })
	const authFailed, noLogin = -115, -124
	refuse := func(code int32) func() {
		return func() { srv.Refuse(code); srv.Drop() }
	}
	for i, step := range []struct {
		do                        func()
		code                      string // of the condition then; "" means up
		denied, unreachable, back int    // lines in the log
	}{
		{refuse(authFailed), registry.CodeDenied, 1, 1, 0}, // the drop is a failure, too
		{func() { srv.Cut(true) }, registry.CodeUnreachable, 1, 1, 0},
		{func() { srv.Cut(false) }, registry.CodeDenied, 1, 1, 0},
		{refuse(0), "", 1, 1, 1},
		{func() { srv.Cut(true) }, registry.CodeUnreachable, 1, 2, 1},
		{func() { srv.Refuse(noLogin); srv.Cut(false) }, registry.CodeDenied, 2, 2, 1},
		{refuse(0), "", 2, 2, 2},
	} {
		step.do()
		eventually.True(t, fmt.Sprintf("the code %q in step %d", step.code, i), func() bool { return r.Condition().Code == step.code })
		eventually.True(t, fmt.Sprintf("the log of step %d", i), func() bool {
			return log.count("code=denied") == step.denied && log.count("code=unreachable") == step.unreachable && log.count("ZooKeeper responds again") == step.back
		})
	}
}

func TestReduced(t *testing.T) {
	for _, c := range []struct{ weights, want []int }{
		{nil, nil}, {[]int{100, 100}, []int{1, 1}}, {[]int{100, 150, 50}, []int{2, 3, 1}}, {[]int{7}, []int{1}}, {[]int{3, 1}, []int{3, 1}},
		{[]int{1000, 500}, []int{2, 1}}, {[]int{maxDubboWeight, maxDubboWeight / 2, 1}, []int{registry.MaxWeight, registry.MaxWeight / 2, 1}}, {[]int{0, 0}, []int{1, 1}},
	} {
		var all []registry.Endpoint
		for i, w := range c.weights {
			all = append(all, registry.Endpoint{Addr: fmt.Sprint(i), Weight: w})
		}
		var got []int
		before := slices.Clone(all)
		for _, e := range reduced(all) {
			got = append(got, e.Weight)
		}
		if heavier(all); !slices.Equal(all, before) {
			t.Errorf("%v: the weights before are changed: %v", c.weights, all)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.weights, got, c.want)
		}
	}
}

package zookeeper

import (
	"context"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/registrytest"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

func at(addr string, weight int) registry.Registration {
	return registry.Registration{Service: hello, Node: "n", Addr: addr, Weight: weight, Protocol: "dubbo"}
}

// TestRegister: what a registration writes, and that it can be withdrawn, restored, changed and closed.
func TestRegister(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStore(t)
	consumer, p1, p2 := s.open(nil), s.open(nil), s.open(nil)
	got := registrytest.Watch(t, consumer, hello)
	got.WaitAddrs()
	h1 := p1.Register(registry.Registration{Service: hello, Node: "n1", Addr: "10.0.0.1:80", Zone: "z", Protocol: "dubbo",
		Metadata: map[string]string{"methods": "hi", "weight": "ours counts", "bad": "a&b"}})
	got.WaitAddrs("10.0.0.1:80")
	names := s.children("/dubbo/" + hello + "/providers")
	const want = "dubbo://10.0.0.1:80/demo.Hello?application=remora&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false&" +
		"interface=demo.Hello&methods=hi&prefer.serialization=hessian2&remora.node=n1&serialization=hessian2&side=provider&zone=z"
	if len(names) != 1 || names[0] != url.QueryEscape(want) {
		t.Errorf("got  %q\nwant %s", names, want)
	}
	h2 := p2.Register(registry.Registration{Service: hello, Node: "n2", Addr: "10.0.0.2:80", Weight: 3, Protocol: "dubbo"})
	snap := got.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	if wanted := []registry.Endpoint{
		{Addr: "10.0.0.1:80", Weight: 1, Zone: "z", Protocol: "dubbo", Node: "n1"},
		{Addr: "10.0.0.2:80", Weight: 3, Protocol: "dubbo", Node: "n2"},
	}; !slices.Equal(snap.Endpoints, wanted) {
		t.Errorf("got %+v, want %+v", snap.Endpoints, wanted)
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

	h1.Change(registry.Registration{Service: hello, Node: "n1", Addr: "10.0.0.1:80", Weight: 2, Protocol: "dubbo"})
	got.Wait("the new weight", func(snap *registry.Snapshot) bool {
		return text(snap.Endpoints) == "10.0.0.1:80*2 dubbo, 10.0.0.2:80*3 dubbo"
	})
	waitState(t, h1, registry.Registered)
	eventually.True(t, "the old record to go", func() bool { return len(s.children("/dubbo/"+hello+"/providers")) == 2 })
	h1.Change(at("10.0.0.7:80", 1)) // another one
	if h1.State() != registry.Registered {
		t.Errorf("state %v after a change that is invalid", h1.State())
	}

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
	if names := s.children("/dubbo/" + hello + "/providers"); len(names) != 1 {
		t.Errorf("after Close: %q", names)
	}
	h2.Restore() // closed is final
	got.WaitAddrs("10.0.0.1:80")
	if err := h1.Close(ctx); err != nil {
		t.Error(err)
	}
	got.WaitAddrs()
}

// TestRegisterInvalid: what consumers of Dubbo could not call fails at once.
func TestRegisterInvalid(t *testing.T) {
	s := newStore(t)
	r := s.open(nil)
	for _, reg := range []registry.Registration{
		{Service: "", Addr: "10.0.0.1:1", Protocol: "dubbo"}, {Service: "a", Addr: "10.0.0.1", Protocol: "dubbo"},
		{Service: "a", Addr: "10.0.0.1:1", Protocol: "dubbo", Zone: strings.Repeat("z", registry.MaxName+1)},
		{Service: "a", Addr: "10.0.0.1:1", Protocol: "link"}, {Service: "a", Addr: "10.0.0.1:1", Protocol: "tcp"}, {Service: "a/b", Addr: "10.0.0.1:1", Protocol: "dubbo"},
	} {
		h := r.Register(reg)
		if h.State() != registry.Failed || h.Err() == nil {
			t.Errorf("%+v: %v, %v", reg, h.State(), h.Err())
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	all := s.open(as(Service{Interface: "a", Group: "*"}))
	if h := all.Register(at("10.0.0.1:1", 1)); h.State() != registry.Failed {
		t.Errorf("all groups: %v", h.State())
	}
	triple := s.open(as(Service{Interface: "a", Group: "g", Version: "1"}))
	waitState(t, triple.Register(registry.Registration{Service: "a", Addr: "[2001:db8::1]:80", Protocol: "http"}), registry.Registered)
	names := s.children("/dubbo/a/providers")
	if len(names) != 1 {
		t.Fatalf("%q", names)
	}
	named := s.open(as(Service{Interface: "b", Applications: []string{"one"}}))
	waitState(t, named.Register(at("10.0.0.1:80", 1)), registry.Registered)
	if got := s.children("/dubbo/b/providers"); len(got) != 1 || !strings.Contains(got[0], url.QueryEscape("?application=one&")) {
		t.Errorf("of the application one: %q", got)
	}
	if p := parseProvider(names[0]); p.scheme != "tri" || p.addr != "[2001:db8::1]:80" || p.group != "g" || p.version != "1" {
		t.Errorf("%+v", p)
	}
}

// TestRecordComesBack: a record that is lost, however, is written again.
func TestRecordComesBack(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, lose := range map[string]func(*zktest.Server, string){
		"deleted by hand":  func(s *zktest.Server, path string) { s.Delete(path) },
		"session ended":    func(s *zktest.Server, _ string) { s.Expire() },
		"lost its data":    func(s *zktest.Server, _ string) { s.Wipe() },
		"connection ended": func(s *zktest.Server, _ string) { s.Drop() },
		"frozen": func(s *zktest.Server, path string) {
			s.Freeze(true)
			s.Delete(path)
			s.Freeze(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := zktest.Start(t)
			var log said
			session := brief
			if name == "deleted by hand" {
				session = func(*Options) {} // it must not end
			}
			r := storeAt(t, srv.Addr()).open(all(session, logTo(&log), func(o *Options) { o.Chroot = "/shop" }))
			h := r.Register(at("10.0.0.1:80", 1))
			waitState(t, h, registry.Registered)
			path := h.(*handle).record.path()
			for range 3 {
				before := srv.Owner(path)
				if before <= 0 {
					t.Fatalf("owner %d", before)
				}
				connections := srv.Connections()
				lose(srv, path)
				if name != "deleted by hand" {
					eventually.True(t, "another connection", func() bool { return srv.Connections() > connections })
				}
				eventually.True(t, "the record", func() bool { return srv.Owner(path) > 0 && h.State() == registry.Registered })
			}
			if n := log.count("msg=registered"); n > 1 && name == "deleted by hand" {
				t.Errorf("the log has it %d times", n)
			}
		})
	}
}

// TestTakeover: a process that registers what another one has registered takes the record over. The former process then
// leaves the record alone, also at its end.
func TestTakeover(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	first, second := s.open(nil), s.open(nil)
	h1 := first.Register(at("10.0.0.1:80", 1))
	waitState(t, h1, registry.Registered)
	watch := registrytest.Watch(t, s.open(nil), hello)
	watch.WaitAddrs("10.0.0.1:80")
	path := h1.(*handle).record.path()
	owner := srv.Owner(path)
	h1.Yield()
	if srv.Owner(path) != owner || h1.State() != registry.Registered {
		t.Error("Yield has changed something")
	}
	h2 := second.Register(at("10.0.0.1:80", 1))
	waitState(t, h2, registry.Registered)
	taken := srv.Owner(path)
	if taken == owner || taken <= 0 {
		t.Fatalf("owner %d after %d", taken, owner)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	changes := srv.Changes()
	if err := h1.Close(ctx); err != nil {
		t.Error(err)
	}
	first.Close()
	if srv.Owner(path) != taken || srv.Changes() != changes {
		t.Errorf("the former process has changed something: owner %d, %d changes", srv.Owner(path), srv.Changes()-changes)
	}
	watch.Always("10.0.0.1:80")
	if n := len(watch.History()); n != 1 {
		t.Errorf("%d snapshots: %s", n, registrytest.Describe(watch.History()))
	}
	if err := h2.Close(ctx); err != nil {
		t.Error(err)
	}
	if srv.Owner(path) != -1 {
		t.Error("the record is there after Close")
	}
}

// TestRestoreAfterYield: a process whose successor has failed has its record again.
func TestRestoreAfterYield(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	first, second := s.open(nil), s.open(nil)
	h1 := first.Register(at("10.0.0.1:80", 1))
	waitState(t, h1, registry.Registered)
	path := h1.(*handle).record.path()
	h1.Yield()
	h2 := second.Register(at("10.0.0.1:80", 1))
	waitState(t, h2, registry.Registered)
	h1.Restore()
	id1, _ := first.handles.current()
	eventually.True(t, "the record", func() bool { return srv.Owner(path) == id1 })
	// The successor leaves it at that: else the two would go on for ever.
	claimed, _ := second.handles.current()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := h2.(*handle).put(ctx, h2.(*handle).record, claimed, &claimed); err != nil || srv.Owner(path) != id1 {
		t.Errorf("%v, owner %d, want %d", err, srv.Owner(path), id1)
	}
	second.Close() // without a Close of its registration, as in a crash
	eventually.True(t, "the record", func() bool { return srv.Owner(path) > 0 && h1.State() == registry.Registered })
}

// TestCloseInOutage: a registration can be closed while ZooKeeper is down.
func TestCloseInOutage(t *testing.T) {
	srv := zktest.Start(t)
	r := storeAt(t, srv.Addr()).open(nil)
	h := r.Register(at("10.0.0.1:80", 1))
	waitState(t, h, registry.Registered)
	srv.Cut(true)
	waitState(t, h, registry.Pending)
	if h.Err() == nil {
		t.Error("no error while cut off")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Close(ctx); err != context.Canceled {
		t.Error(err)
	}
	if h.State() != registry.Closed {
		t.Error(h.State())
	}
	never := r.Register(at("10.0.0.2:80", 1))
	if never.State() != registry.Pending {
		t.Error(never.State())
	}
	ctx, cancel = context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := never.Close(ctx); err != nil {
		t.Errorf("one that was never written: %v", err)
	}
	r.Close()
	if h := r.Register(at("10.0.0.3:80", 1)); h.State() != registry.Closed || h.Err() != ErrClosed {
		t.Errorf("after Close: %v, %v", h.State(), h.Err())
	}
	if len(slices.DeleteFunc(srv.Paths(), func(p string) bool { return !strings.Contains(p, "10.0.0.2") })) > 0 {
		t.Error("a record was written")
	}
}

// TestRegisterRefused: a registration says why it is refused, until it is not, and the log says it once, also if there was no connection
// at first.
func TestRegisterRefused(t *testing.T) {
	srv := zktest.Start(t)
	var log said
	s := storeAt(t, srv.Addr())
	r := s.open(logTo(&log))
	rec, err := r.recordOf(ptr(at("10.0.0.1:80", 1)))
	if err != nil {
		t.Fatal(err)
	}
	srv.Fail(rec.path(), int32(session.NoAuth))
	h := r.Register(at("10.0.0.1:80", 1))
	eventually.True(t, "a refusal", func() bool { return h.State() == registry.Pending && h.Err() == session.NoAuth })
	srv.Fail(rec.path(), 0)
	waitState(t, h, registry.Registered)
	eventually.True(t, "the log of it", func() bool { return log.count("msg=registered") > 0 })
	if h.Err() != nil || log.count("registration failed") != 1 || log.count("msg=registered") != 1 {
		t.Errorf("%v; the log has %s", h.Err(), log.String())
	}
	srv.Freeze(true) // a changed value can't be put
	h.Change(at("10.0.0.1:80", 2))
	if h.State() != registry.Pending {
		t.Errorf("changed, and %v", h.State())
	}
	srv.Freeze(false)
	waitState(t, h, registry.Registered)
	if h.Change(at("10.0.0.1:80", 2)); h.State() != registry.Registered {
		t.Errorf("changed to what it is, and %v", h.State())
	}
	if rec, err = r.recordOf(ptr(at("10.0.0.1:80", 3))); err != nil { // another refusal is told again
		t.Fatal(err)
	}
	told := log.count("registration failed")
	srv.Fail(rec.path(), int32(session.NoAuth))
	h.Change(at("10.0.0.1:80", 3))
	eventually.True(t, "a refusal", func() bool { return h.State() == registry.Pending && h.Err() == session.NoAuth })
	if n := log.count("registration failed"); n != told+1 {
		t.Errorf("%d refusals are told, want %d", n, told+1)
	}
	srv.Fail(rec.path(), 0)
	waitState(t, h, registry.Registered)
	if n := log.count("msg=withdrawn"); n != 2 {
		t.Errorf("%d records are withdrawn, want the two before", n)
	}
}

// TestRegisterBeforeConnection: a registration says that there is no connection, before the first try to open one has failed.
func TestRegisterBeforeConnection(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	srv.Freeze(true)
	h := s.open(nil).Register(at("10.0.0.1:80", 1))
	eventually.True(t, "the reason", func() bool { return h.Err() == session.ErrLost })
	if h.State() != registry.Pending {
		t.Error(h.State())
	}
	srv.Freeze(false)
	waitState(t, h, registry.Registered)
}

// TestPausesBeginAnew: the pauses between tries grow while a registration is refused, or is not withdrawn. Once that has ended they begin
// anew.
func TestPausesBeginAnew(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct {
		refused, after func(h registry.Handle) // after is nil if it goes on
		state          registry.State
	}{
		"refused":             {func(registry.Handle) {}, func(h registry.Handle) { h.Change(at("10.0.0.1:80", 2)) }, registry.Registered},
		"not withdrawn":       {func(h registry.Handle) { h.Withdraw() }, func(registry.Handle) {}, registry.Withdrawn},
		"still refused":       {func(registry.Handle) {}, nil, registry.Registered},
		"still not withdrawn": {func(h registry.Handle) { h.Withdraw() }, nil, registry.Withdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := zktest.Start(t)
			s := storeAt(t, srv.Addr())
			var mu sync.Mutex
			tries := 0 // each begins with a look at the node
			var log said
			r := s.openAt(overtaken(t, srv.Addr(), func(op int32) {
				mu.Lock()
				defer mu.Unlock()
				if op == opExists {
					tries++
				}
			}), grace, logTo(&log))
			rec, err := r.recordOf(ptr(at("10.0.0.1:80", 1)))
			if err != nil {
				t.Fatal(err)
			}
			if c.state == registry.Registered {
				srv.Fail(rec.path(), int32(session.NoAuth))
			}
			h := r.Register(at("10.0.0.1:80", 1))
			if c.state != registry.Registered {
				waitState(t, h, registry.Registered)
				srv.Fail(rec.path(), int32(session.NoAuth))
				mu.Lock()
				tries = 0
				mu.Unlock()
			}
			c.refused(h)
			eventually.True(t, "four refusals, and three pauses between them", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return tries >= 4
			})
			if c.after == nil {
				r.Close()
				if next := h.(*handle).backoff.Next(); next < 2*minPause {
					t.Errorf("the next pause would be %v", next)
				}
				return
			}
			srv.Fail(rec.path(), 0)
			eventually.True(t, "success", func() bool { return h.State() == c.state && h.Err() == nil })
			if n := log.count("registration failed"); n != map[registry.State]int{registry.Registered: 1}[c.state] {
				t.Errorf("%d refusals are told", n)
			}
			c.after(h)
			eventually.True(t, "success", func() bool { return h.State() == c.state && h.Err() == nil })
			r.Close() // the goroutine of the registration has ended
			if next := h.(*handle).backoff.Next(); next >= 2*minPause {
				t.Errorf("the next pause would be %v", next)
			}
		})
	}
}

// TestWithdrawRefused: a record that may not be removed stays, with the reason, and is removed once it may be.
func TestWithdrawRefused(t *testing.T) {
	srv := zktest.Start(t)
	r := storeAt(t, srv.Addr()).open(nil)
	h := r.Register(at("10.0.0.1:80", 1))
	waitState(t, h, registry.Registered)
	rec, err := r.recordOf(ptr(at("10.0.0.1:80", 1)))
	if err != nil {
		t.Fatal(err)
	}
	srv.Fail(rec.path(), int32(session.NoAuth))
	h.Withdraw()
	eventually.True(t, "a refusal", func() bool { return h.State() == registry.Withdrawn && h.Err() == session.NoAuth })
	if !slices.Contains(srv.Paths(), rec.path()) {
		t.Error("the record is removed")
	}
	srv.Fail(rec.path(), 0)
	eventually.True(t, "the record to go", func() bool { return h.Err() == nil && !slices.Contains(srv.Paths(), rec.path()) })
}

// TestRegisterWhereNothingIs: a registration makes the nodes above its record, and says why it may not.
func TestRegisterWhereNothingIs(t *testing.T) {
	for up := range 3 { // the node that may not be made, from the folder of the record
		srv := zktest.Start(t)
		r := storeAt(t, srv.Addr()).open(nil)
		rec, err := r.recordOf(ptr(at("10.0.0.1:80", 1)))
		if err != nil {
			t.Fatal(err)
		}
		above := rec.dir
		for range up {
			above = path.Dir(above)
		}
		srv.Fail(above, int32(session.NoAuth))
		h := r.Register(at("10.0.0.1:80", 1))
		eventually.True(t, "a refusal", func() bool { return h.State() == registry.Pending && h.Err() == session.NoAuth })
		srv.Fail(above, 0)
		waitState(t, h, registry.Registered)
		if !slices.Contains(srv.Paths(), rec.path()) {
			t.Errorf("no record below %s", above)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestOwners: the nodes above a record outlive its session, and a registration remembers its last sessions.
func TestOwners(t *testing.T) {
	srv := zktest.Start(t)
	h := storeAt(t, srv.Addr()).open(nil).Register(at("10.0.0.1:80", 1)).(*handle)
	waitState(t, h, registry.Registered)
	for dir := path.Dir(h.record.path()); dir != "/"; dir = path.Dir(dir) {
		if srv.Owner(dir) != 0 {
			t.Errorf("%s belongs to session %d", dir, srv.Owner(dir))
		}
	}
	const sessions = 2 * maxOwners
	other := &handle{r: h.r}
	for id := range int64(sessions) {
		for range 2 {
			if err := other.put(t.Context(), h.record, id, &id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(other.owners) != maxOwners || other.owners[0] != sessions-maxOwners || other.owners[maxOwners-1] != sessions-1 || len(other.written) != 1 {
		t.Errorf("the sessions are %v, the records %v", other.owners, other.written)
	}
}

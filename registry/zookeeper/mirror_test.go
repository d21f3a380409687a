package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// newMirror returns a mirror without a function that reads.
func newMirror(t *testing.T) *mirror {
	of := tasks.New()
	t.Cleanup(of.Close)
	m := new(mirror)
	m.init(of, nil)
	return m
}

// TestUnreadableKeys: a key that can't be read is read once in each pause, whatever else has made it stale before, and no more
// once it can be read.
func TestUnreadableKeys(t *testing.T) {
	for name, makeStale := range map[string]func(*mirror){
		"alone": func(*mirror) {}, "changes": func(m *mirror) { m.changed("/a") }, "connections": func(m *mirror) { m.connect(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads, result := 0, value{err: errChildren}
				m := newMirror(t)
				m.read = func(context.Context, key) (value, error) {
					m.mu.Lock()
					defer m.mu.Unlock()
					reads++
					return result, nil
				}
				readsIn := func(d time.Duration) int {
					m.mu.Lock()
					before := reads
					m.mu.Unlock()
					time.Sleep(d)
					synctest.Wait()
					m.mu.Lock()
					defer m.mu.Unlock()
					return reads - before
				}
				m.connect(true)
				f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
				m.use(f, key{"/a", true})
				for range 5 {
					time.Sleep(time.Second)
					makeStale(m)
					synctest.Wait()
				}
				begin := time.Now().Add(-5 * time.Second)
				if n := readsIn(20 * unreadablePause); n < 20 || n > 21 {
					t.Errorf("%d reads in 20 pauses", n)
				}
				if since, err := m.failure(); err != errChildren || !since.Equal(begin) {
					t.Errorf("%v since %v after the first read", err, since.Sub(begin))
				}
				m.mu.Lock()
				result = value{}
				m.mu.Unlock()
				if n := readsIn(20 * unreadablePause); n != 1 {
					t.Errorf("%d reads of a key that can be read", n)
				}
			})
		})
	}
}

// TestFailedReads: a read that fails while there is a connection is repeated after a pause, and another connection ends the pause.
func TestFailedReads(t *testing.T) {
	for _, failure := range []error{session.ErrFormat, session.Expired, session.AuthFailed, context.DeadlineExceeded} {
		t.Run(failure.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads int
				var err error
				m := newMirror(t)
				m.read = func(context.Context, key) (value, error) {
					m.mu.Lock()
					defer m.mu.Unlock()
					if reads++; reads > 1000 {
						return value{}, session.ErrLost // ends a loop without a pause
					}
					return value{data: "x"}, err
				}
				expect := func(what string, want int) {
					t.Helper()
					synctest.Wait()
					m.mu.Lock()
					defer m.mu.Unlock()
					if reads != want {
						t.Errorf("%s: %d reads, want %d", what, reads, want)
					}
				}
				f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
				err = failure
				m.connect(true)
				m.use(f, key{"/a", false})
				expect("at first", 1)
				time.Sleep(10*readPause + readPause/2)
				expect("later", 11)
				if _, ok := m.use(f, key{"/a", false}); ok {
					t.Error("a key that was not read is fresh")
				}
				m.connect(true)
				expect("after a connection", 12)
				m.mu.Lock()
				err = nil
				m.mu.Unlock()
				time.Sleep(10 * readPause)
				expect("readable again", 13)
				if v, ok := m.use(f, key{"/a", false}); !ok || v.data != "x" {
					t.Errorf("%+v, %t", v, ok)
				}
			})
		})
	}
}

// TestLostReads: what a read has not got from a connection that ends, the next connection is asked for, at once and once. No key is
// read before.
func TestLostReads(t *testing.T) {
	for _, c := range []struct {
		name    string
		isFirst bool // the next connection comes before the read knows of the end
	}{{"the end is known", false}, {"the next connection is there", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirror(t)
				var reads []string
				m.read = func(_ context.Context, k key) (value, error) {
					m.mu.Lock()
					reads = append(reads, k.path)
					isLost := len(reads) == 1
					m.mu.Unlock()
					time.Sleep(time.Second)
					if isLost {
						return value{}, session.ErrLost
					}
					return value{data: "x"}, nil
				}
				expect := func(what string, want int) {
					t.Helper()
					synctest.Wait()
					m.mu.Lock()
					defer m.mu.Unlock()
					if len(reads) != want {
						t.Errorf("%s: %q are read", what, reads)
					}
				}
				f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
				m.connect(true)
				m.use(f, key{"/a", false})
				expect("at first", 1)
				if c.isFirst {
					m.connect(false)
				}
				time.Sleep(time.Minute)
				m.use(f, key{"/b", false})
				time.Sleep(time.Minute)
				if !c.isFirst {
					expect("without a connection", 1)
					m.connect(false)
					time.Sleep(time.Minute)
				}
				expect("with another connection", 3)
				for _, path := range []string{"/a", "/b"} {
					if v, ok := m.use(f, key{path, false}); !ok || v.data != "x" {
						t.Errorf("%s: %+v, %t", path, v, ok)
					}
				}
			})
		})
	}
}

// TestChangedWhileRead: a key that changes while it is read is read again, and is not fresh before.
func TestChangedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirror(t)
		reads := 0
		m.read = func(context.Context, key) (value, error) {
			m.mu.Lock()
			reads++
			n := reads
			m.mu.Unlock()
			time.Sleep(time.Second)
			return value{data: fmt.Sprint(n)}, nil
		}
		m.connect(true)
		k := key{"/a", false}
		f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
		m.use(f, k)
		time.Sleep(time.Second / 2)
		m.changed("/a")
		time.Sleep(time.Second)
		synctest.Wait()
		if v, ok := m.use(f, k); ok || len(m.takeDirty()) > 0 {
			t.Errorf("the value from before the change is fresh: %+v", v)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if v, ok := m.use(f, k); !ok || v.data != "2" || reads != 2 || len(m.takeDirty()) != 1 {
			t.Errorf("%+v, fresh %t, after %d reads", v, ok, reads)
		}
		if again := m.takeDirty(); len(again) > 0 {
			t.Error("a follower looks twice for one change")
		}
	})
}

// TestStoppedFollower: a follower that stops while a look of its own is due takes no key from a follower that has come meanwhile.
func TestStoppedFollower(t *testing.T) {
	m := newMirror(t)
	m.connected = true
	m.read = func(context.Context, key) (value, error) { return value{}, nil }
	newFollower := func() *follower {
		return &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
	}
	k := key{"/a", true}
	before, after := newFollower(), newFollower()
	m.use(before, k)
	m.mu.Lock()
	shared := m.entries[k]
	m.mu.Unlock()
	before.stop(m)
	if _, ok := m.use(before, key{"/b", true}); ok || len(m.entries) > 0 {
		t.Error("a stopped follower uses a key")
	}
	m.use(after, k)
	if _, isComplete, _ := before.findIn(m); isComplete {
		t.Error("a stopped follower has a list")
	}
	m.mu.Lock()
	m.drop(before, shared)
	clear(after.missing)
	m.mu.Unlock()
	m.changed("/a")
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(after.missing) != 1 {
		t.Error("the key of the other follower is gone")
	}
}

// TestInstancesStayWhileUnread: an instance in use keeps its place while the names of its application's instances are read again, or
// can't be read, and another application then has as many instances as are read.
func TestInstancesStayWhileUnread(t *testing.T) {
	const app, other = "/services/app", "/services/0app"
	denied := errors.New("denied")
	nodes := map[key]value{
		{app, true}:            {children: []string{"zero"}},
		{app + "/zero", false}: {data: instanceData("10.0.0.9", "", 1)},
		{app + "/one", false}:  {data: instanceData("10.0.0.1", "", 1)},
	}
	m := newMirror(t)
	m.connected = true
	m.read = func(_ context.Context, k key) (value, error) { return nodes[k], nil }
	f := &follower{
		r: new(Registry), of: Service{Interface: hello, Scheme: "dubbo", Applications: []string{"0app", "app"}},
		used: make(map[*entry]struct{}), missing: make(map[*entry]struct{}),
	}
	look := func() {
		t.Helper()
		var found findings
		eventually.True(t, "a complete look", func() (isComplete bool) {
			found, isComplete, _ = f.findIn(m)
			return isComplete
		})
		if len(found.usable) != 1 {
			t.Errorf("%d endpoints are usable", len(found.usable))
		}
	}
	look()
	names := value{children: []string{"one"}}
	nodes[key{app, true}] = names // another instance is in use then
	m.changed(app)
	look()
	set := func(path string, now value, want error) {
		t.Helper()
		nodes[key{path, true}] = now
		m.changed(path)
		eventually.True(t, "a complete look", func() bool {
			found, isComplete, _ := f.findIn(m)
			return isComplete && found.err == want
		})
	}
	set(app, value{err: denied}, denied)
	var ids []string
	for i := range maxInstances {
		ids = append(ids, fmt.Sprint(i))
	}
	set(other, value{children: ids}, denied)
	set(app, names, nil)
	look()
	m.lose() // nothing is read
	m.changed(app)
	m.changed(other)
	if _, isComplete, _ := f.findIn(m); isComplete {
		t.Error("a look is complete without what changed")
	}
	m.mu.Lock()
	m.connected = true
	m.pump()
	m.mu.Unlock()
	look()
}

// TestKeyLeavesWhileStale: a key that changes during a look, which does not need the key any more, leads to another look.
func TestKeyLeavesWhileStale(t *testing.T) {
	m := newMirror(t) // without a connection: nothing is read
	f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
	gone := &entry{key: key{"/services/gone", true}, users: map[*follower]struct{}{f: {}}}
	m.entries[gone.key] = gone
	m.changed(gone.key.path)
	if isComplete, _ := f.endLook(m, map[*entry]struct{}{gone: {}}, &findings{}); isComplete {
		t.Error("the look is complete")
	}
	if n := len(m.takeDirty()); n != 1 || len(m.entries) > 0 {
		t.Errorf("%d other looks are due, %d keys stay", n, len(m.entries))
	}
}

// TestMemoryOfDropped: what a node had is forgotten once nobody uses the node, however many nodes were read together.
func TestMemoryOfDropped(t *testing.T) {
	m := newMirror(t)
	m.read = func(context.Context, key) (value, error) { return value{}, nil }
	f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
	keys := make([]key, 100)
	for i := range keys {
		keys[i] = key{fmt.Sprint(i), false}
		m.use(f, keys[i])
	}
	m.connect(true)
	for _, k := range keys {
		eventually.True(t, "the value of a key", func() bool { _, ok := m.use(f, k); return ok })
	}
	m.mu.Lock()
	first := weak.Make(m.entries[keys[0]])
	m.mu.Unlock()
	f.stop(m)
	clear(f.used)
	eventually.True(t, "the end of an entry", func() bool { runtime.GC(); return first.Value() == nil })
	runtime.KeepAlive(m)
}

// TestFailure: of several keys that can't be read, the condition has the first one by its path.
func TestFailure(t *testing.T) {
	m := newMirror(t)
	at := time.Unix(1, 0)
	for i, path := range []string{"/c", "/a", "/b"} {
		m.entries[key{path, true}] = &entry{value: value{err: fmt.Errorf("%s", path)}, failed: at.Add(time.Duration(i))}
	}
	m.entries[key{"/0", true}] = &entry{}
	for range 20 { // in any order
		if since, err := m.failure(); err == nil || err.Error() != "/a" || !since.Equal(at.Add(1)) {
			t.Fatalf("%v since %v", err, since)
		}
	}
}

// TestReadsAtATime: no more than maxReads keys are read at a time, and all are read.
func TestReadsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirror(t)
		now, most := 0, 0
		m.read = func(context.Context, key) (value, error) {
			m.mu.Lock()
			now++
			most = max(most, now)
			m.mu.Unlock()
			time.Sleep(time.Second)
			m.mu.Lock()
			now--
			m.mu.Unlock()
			return value{}, nil
		}
		m.connect(true)
		f := &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
		for i := range 3 * maxReads {
			m.use(f, key{fmt.Sprint("/", i), true})
		}
		time.Sleep(3*time.Second + time.Second/2)
		m.mu.Lock()
		defer m.mu.Unlock()
		if most != maxReads || len(f.missing) != 0 || m.reads != 0 {
			t.Errorf("%d reads at a time; %d keys are missing, %d reads are on their way", most, len(f.missing), m.reads)
		}
	})
}

// TestDroppedKeys: keys that nobody uses any more do not keep others from being read, and the end of their reads says nothing of a later
// connection.
func TestDroppedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newFollower := func() *follower {
			return &follower{used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
		}
		m := newMirror(t)
		var read []string
		late := make(chan struct{})
		m.read = func(_ context.Context, k key) (value, error) {
			m.mu.Lock()
			read = append(read, k.path)
			m.mu.Unlock()
			if k.path == "/late" {
				<-late
				return value{}, session.ErrLost
			}
			return value{}, nil
		}
		gone, stays := newFollower(), newFollower()
		m.use(gone, key{"/gone", true})
		m.use(stays, key{"/stays", true})
		gone.stop(m)
		m.connect(true)
		synctest.Wait()
		if len(read) != 1 || read[0] != "/stays" {
			t.Errorf("read are %v", read)
		}
		gone = newFollower()
		m.use(gone, key{"/late", true})
		synctest.Wait()
		gone.stop(m)
		m.connect(false)
		close(late)
		synctest.Wait()
		if !m.connected {
			t.Error("the end of the connection before counts")
		}
	})
}

// TestReadKey: the bounds of a node, and which errors are of the node.
func TestReadKey(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	for i := range maxChildren {
		srv.Create(fmt.Sprint("/children/", i), "")
	}
	srv.Create("/data", strings.Repeat("x", maxData))
	srv.Create("/denied", "")
	srv.Protect("/denied", "me:secret")
	read := func(path string, children bool) (value, error) {
		return readKey(t.Context(), s.raw, key{path, children})
	}
	if v, err := read("/children", true); err != nil || v.err != nil || len(v.children) != maxChildren {
		t.Errorf("%d children, %v, %v", len(v.children), v.err, err)
	}
	if v, err := read("/data", false); err != nil || v.err != nil || v.isLarge || len(v.data) != maxData {
		t.Errorf("%d bytes, %v, %v", len(v.data), v.err, err)
	}
	srv.Create("/children/more", "")
	if v, err := read("/children", true); err != nil || v.err != errChildren || len(v.children) != 0 {
		t.Errorf("%d children, %v, %v", len(v.children), v.err, err)
	}
	srv.Create("/data", strings.Repeat("x", maxData+1))
	if v, err := read("/data", false); err != nil || v.err != nil || !v.isLarge || v.data != "" {
		t.Errorf("%d bytes, large %t, %v, %v", len(v.data), v.isLarge, v.err, err)
	}
	for _, children := range []bool{true, false} {
		if v, err := read("/none", children); err != nil || v.err != nil || v.data != "" || v.children != nil {
			t.Errorf("a missing node: %+v, %v", v, err)
		}
		if v, err := read("/denied", children); err != nil || !errors.Is(v.err, session.NoAuth) {
			t.Errorf("a node that is denied: %+v, %v", v, err)
		}
	}
	unconnected := session.New(session.Options{Servers: []string{srv.Addr()}})
	if _, err := readKey(t.Context(), unconnected, key{"/data", false}); err != session.ErrLost {
		t.Errorf("without a connection: %v", err)
	}
	srv.Refuse(int32(session.NoLogin))
	if _, err := read("/data", false); err != session.NoLogin {
		t.Errorf("without an account: %v", err)
	}
}

package zookeeper

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// newMirror returns a mirror without a function that reads.
func newMirror(t *testing.T) *mirror {
	return &mirror{
		ctx: t.Context(), entries: make(map[key]*entry), dirty: make(map[*follower]struct{}), wake: make(chan struct{}, 1),
		start: func(f func()) bool { go f(); return true },
	}
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
				if n := readsIn(20 * unreadablePause); n < 20 || n > 21 {
					t.Errorf("%d reads in 20 pauses", n)
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

// TestInstancesStayWhileUnread: an instance in use keeps its place while the names of its application's instances are read again, and
// another application then has as many instances as are read.
func TestInstancesStayWhileUnread(t *testing.T) {
	const app, other = "/services/app", "/services/0app"
	nodes := map[key]value{
		{app, true}:           {children: []string{"one"}},
		{app + "/one", false}: {data: instanceData("10.0.0.1", "", 1)},
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
	var ids []string
	for i := range maxInstances {
		ids = append(ids, fmt.Sprint(i))
	}
	nodes[key{other, true}] = value{children: ids}
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

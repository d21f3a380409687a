package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// key is what is read of a node: its data, or the names of its children.
type key struct {
	path     string
	children bool
}

// value is what a key had when it was read last.
type value struct {
	err      error // the node can't be read, as its ACL or its size forbids it
	data     string
	isLarge  bool // data was left out, as it has more than maxData bytes
	children []string
	// A node that does not exist has no data and no children.
}

// entry is a key that somebody uses. It is
//
//	stale    a read is due: at first, after a change, and after another connection
//	paused   stale, but the last read has failed, and the next one waits for readPause
//	reading  a read is on its way; a change meanwhile makes it stale again
//	fresh    the value is that of ZooKeeper, and a watch is set
type entry struct {
	key     key
	value   value
	failed  time.Time   // when value.err came
	again   *time.Timer // makes the entry stale while value.err stays; nil before the first error
	stale   bool
	paused  bool
	reading bool
	users   map[*follower]struct{}
}

// maxReads is the number of reads that are on their way at a time.
const maxReads = 32

// Bounds of a node.
const (
	maxChildren = registry.MaxListed // more are an error of the node
	maxData     = 1 << 20            // bytes; more are left out
)

var (
	errChildren = fmt.Errorf("the node has more than %d children", maxChildren)
	errData     = fmt.Errorf("the node has more than %d bytes", maxData)
)

// mirror has the values of those keys that followers use. Keys are read when they are used first, after each change, and
// after each connection, as a server forgets the watches of a connection that ends. Several followers share a key: services
// of one application have the same instances.
type mirror struct {
	read  func(ctx context.Context, k key) (value, error) // sets a watch; errors say that there is no connection
	start func(func()) bool                               // starts a goroutine, or returns false at the end

	mu        sync.Mutex      // also guards what followers say about keys
	ctx       context.Context // of reads
	connected bool
	epoch     int // counts connections
	entries   map[key]*entry
	due       []*entry // stale ones that no read is on its way for
	reads     int

	dirty map[*follower]struct{} // followers that have to look
	wake  chan struct{}          // dirty is not empty; capacity 1
}

// init makes a mirror whose reads are tasks of a group.
func (m *mirror) init(of *tasks.Group, read func(context.Context, key) (value, error)) {
	m.read, m.start, m.ctx = read, of.Go, of.Context()
	m.entries, m.dirty, m.wake = make(map[key]*entry), make(map[*follower]struct{}), make(chan struct{}, 1)
}

// use returns the value of a key for a follower, which is told of changes until drop. ok reports whether it is fresh. For a
// follower that has stopped use does nothing.
func (m *mirror) use(f *follower, k key) (v value, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.stopped {
		return value{}, false
	}
	e := m.entries[k]
	if e == nil {
		e = &entry{key: k, users: make(map[*follower]struct{})}
		m.entries[k] = e
		m.markStale(e)
	}
	e.users[f] = struct{}{}
	f.used[e] = struct{}{}
	if e.stale || e.reading {
		f.miss(e)
		return value{}, false
	}
	return e.value, true
}

// drop ends the use of a key. The caller holds mu.
func (m *mirror) drop(f *follower, e *entry) {
	delete(e.users, f)
	delete(f.missing, e)
	if len(e.users) == 0 && m.entries[e.key] == e {
		delete(m.entries, e.key)
	}
}

// markStale makes an entry stale. The caller holds mu.
func (m *mirror) markStale(e *entry) {
	for f := range e.users {
		f.miss(e)
	}
	if e.stale && !e.paused {
		return
	}
	e.stale, e.paused = true, false
	if !e.reading {
		m.due = append(m.due, e)
		m.pump()
	}
}

// changed is called when a watch of a node has fired.
func (m *mirror) changed(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range []key{{path, true}, {path, false}} {
		if e := m.entries[k]; e != nil {
			m.markStale(e)
		}
	}
}

// connect is called when a server answers: all keys are read again. isNew reports whether the session is another one: followers that
// have found their endpoints before hold them.
func (m *mirror) connect(isNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connected = true
	m.epoch++
	for _, e := range m.entries {
		for f := range e.users {
			f.lost = f.lost || isNew
		}
		m.markStale(e)
	}
	m.pump()
}

func (m *mirror) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connected = false
}

// pump starts reads that are due. The caller holds mu.
func (m *mirror) pump() {
	for m.connected && m.reads < maxReads && len(m.due) > 0 && m.ctx.Err() == nil {
		e := m.due[0]
		m.due[0] = nil
		m.due = m.due[1:]
		if len(e.users) == 0 && m.entries[e.key] != e {
			continue
		}
		epoch := m.epoch
		isStarted := m.start(func() {
			v, err := m.read(m.ctx, e.key)
			m.finish(e, v, err, epoch)
		})
		if !isStarted {
			return
		}
		m.reads++
		e.stale, e.reading = false, true
	}
}

// finish takes the result of a read that began with the connection of this epoch.
func (m *mirror) finish(e *entry, v value, err error, epoch int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads--
	e.reading = false
	switch {
	case e.stale: // it changed meanwhile
		m.due = append(m.due, e)
	case errors.Is(err, session.ErrLost): // the next connection reads it
		e.stale = true
		m.due = append(m.due, e)
		if epoch == m.epoch {
			m.connected = false
		}
	case err != nil:
		e.stale, e.paused = true, true
		time.AfterFunc(readPause, func() { m.resume(e) })
	default:
		if v.err != nil && e.value.err == nil {
			e.failed = time.Now()
		}
		e.value = v
		if v.err != nil {
			m.rereadLater(e)
		}
		for f := range e.users {
			delete(f.missing, e)
			if len(f.missing) == 0 {
				m.mark(f)
			}
		}
	}
	m.pump()
}

// readPause is the time until a read is repeated that has failed although there is a connection.
const readPause = time.Second

// resume ends the pause of a key.
func (m *mirror) resume(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.paused && m.entries[e.key] == e {
		m.markStale(e)
	}
}

// unreadablePause is the time until a key is read again that could not be read. It may have no watch, so a change may come
// without news.
const unreadablePause = 10 * time.Second

// rereadLater makes a key stale after unreadablePause, if it is still used then and could not be read meanwhile. The caller
// holds mu.
func (m *mirror) rereadLater(e *entry) {
	if e.again != nil {
		e.again.Reset(unreadablePause)
		return
	}
	e.again = time.AfterFunc(unreadablePause, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.value.err != nil && m.entries[e.key] == e {
			m.markStale(e)
		}
	})
}

// failure returns the error of the first key, by its path, that can't be read, or nil, and since when.
func (m *mirror) failure() (since time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := ""
	for k, e := range m.entries {
		if e.value.err != nil && (err == nil || k.path < path) {
			path, since, err = k.path, e.failed, e.value.err
		}
	}
	return since, err
}

// mark makes a follower look at its keys. The caller holds mu.
func (m *mirror) mark(f *follower) {
	m.dirty[f] = struct{}{}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// markDirty makes a follower look at its keys although none has changed.
func (m *mirror) markDirty(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f.stopped {
		m.mark(f)
	}
}

// takeDirty returns the followers that have to look at their keys.
func (m *mirror) takeDirty() (all []*follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.dirty {
		all = append(all, f)
	}
	clear(m.dirty)
	return all
}

// readKey reads a key of a session and sets a watch.
func readKey(ctx context.Context, s *session.Session, k key) (v value, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		if k.children {
			v.children, err = s.Children(ctx, k.path, true)
			if len(v.children) > maxChildren {
				return value{err: errChildren}, nil
			}
		} else {
			var data []byte
			data, err = s.Get(ctx, k.path, true)
			if v.isLarge = len(data) > maxData; !v.isLarge {
				v.data = string(data)
			}
		}
		if err != session.NoNode {
			break
		}
		// The watch for a node that does not exist yet. It may have been made meanwhile.
		if _, err = s.Exists(ctx, k.path, true); err != nil {
			break
		}
	}
	var code session.Code
	switch {
	case err == nil || err == session.NoNode:
		return v, nil
	case errors.As(err, &code) && !code.EndsConnection(), errors.Is(err, session.ErrLarge):
		return value{err: fmt.Errorf("%s: %w", k.path, err)}, nil
	}
	return value{}, err
}

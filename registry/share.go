package registry

import (
	"slices"
	"sync"
	"sync/atomic"
)

// SharedWatcher lets all watches of a service share one watch of another Watcher. The shared watch ends
// with the last of them. A new watch gets the last snapshot at once, so nothing is lost when one
// watch replaces another.
type SharedWatcher struct {
	inner Watcher

	mu       sync.Mutex // guards services, and running in each
	services map[string]*sharing
}

var _ Watcher = (*SharedWatcher)(nil)

// Share returns a SharedWatcher for the snapshots of inner. A notify must not call its Watch.
func Share(inner Watcher) *SharedWatcher {
	return &SharedWatcher{inner: inner, services: make(map[string]*sharing)}
}

// Watch implements Watcher.
func (s *SharedWatcher) Watch(service string, notify func(*Snapshot)) (stop func()) {
	u := &user{notify: notify}
	at := s.enter(service)
	at.add(u)
	return func() {
		if !u.stopped.Swap(true) {
			s.leave(service, at)
		}
	}
}

func (s *SharedWatcher) enter(service string) *sharing {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.services[service]
	if at == nil {
		at = &sharing{}
		s.services[service] = at
		at.stop = s.inner.Watch(service, at.deliver)
	}
	at.running++
	return at
}

func (s *SharedWatcher) leave(service string, at *sharing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.running--; at.running == 0 {
		delete(s.services, service)
		at.stop()
	}
}

// Held returns the number of services that are watched, and of the endpoints that their users have.
func (s *SharedWatcher) Held() (services, endpoints int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.services {
		endpoints += int(at.held.Load())
	}
	return len(s.services), endpoints
}

// sharing is the watch of inner for one service, and its users.
type sharing struct {
	stop    func()
	running int          // users that have not stopped
	held    atomic.Int64 // endpoints of last

	mu    sync.Mutex // held while users are notified, so that the order is the same for all
	last  *Snapshot  // nil means none yet
	users []*user    // those that have stopped are removed by sweep
}

// user is one watch of a SharedWatcher.
type user struct {
	notify  func(*Snapshot)
	stopped atomic.Bool
}

func (at *sharing) add(u *user) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.sweep() // there may be no delivery for a long time
	at.users = append(at.users, u)
	if at.last != nil {
		u.notify(at.last.Again())
	}
}

// deliver is called from one goroutine at a time.
func (at *sharing) deliver(s *Snapshot) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.last = s.Again()
	at.held.Store(int64(len(s.Endpoints)))
	at.sweep()
	for _, u := range at.users {
		if !u.stopped.Load() {
			u.notify(at.last)
		}
	}
}

func (at *sharing) sweep() {
	at.users = slices.DeleteFunc(at.users, func(u *user) bool { return u.stopped.Load() })
}

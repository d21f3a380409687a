package registry

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Shared lets all watches of a service share one watch of another watcher, which
// lasts until the last of them is stopped. Who comes later has what that knows at
// once, and nothing of it is lost when one watch takes the place of another.
type Shared struct {
	inner Watcher

	mu       sync.Mutex // guards services, and users in each
	services map[string]*sharing
}

var _ Watcher = (*Shared)(nil)

// Share returns a Watcher of what inner watches. A notify must not call its Watch.
func Share(inner Watcher) *Shared {
	return &Shared{inner: inner, services: make(map[string]*sharing)}
}

// Watch implements Watcher.
func (s *Shared) Watch(service string, notify func(*Snapshot)) (stop func()) {
	u := &user{notify: notify}
	at := s.enter(service)
	at.add(u)
	return func() {
		if !u.stopped.Swap(true) {
			s.leave(service, at)
		}
	}
}

func (s *Shared) enter(service string) *sharing {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.services[service]
	if at == nil {
		at = &sharing{}
		s.services[service] = at
		at.stop = s.inner.Watch(service, at.deliver)
	}
	at.users++
	return at
}

func (s *Shared) leave(service string, at *sharing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(s.services, service)
		at.stop()
	}
}

// sharing is the one watch of a service.
type sharing struct {
	stop  func()
	users int

	mu   sync.Mutex // held while anybody is notified: the order is the same for all
	last *Snapshot  // nil: nothing yet
	all  []*user
}

// user is one of those who share a watch.
type user struct {
	notify  func(*Snapshot)
	stopped atomic.Bool
}

func (at *sharing) add(u *user) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.sweep() // nothing may be delivered for long
	at.all = append(at.all, u)
	if at.last != nil {
		u.notify(at.last.anew())
	}
}

// deliver passes s on. It is called from one goroutine at a time.
func (at *sharing) deliver(s *Snapshot) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.last = s.anew()
	at.sweep()
	for _, u := range at.all {
		if !u.stopped.Load() {
			u.notify(at.last)
		}
	}
}

// sweep drops those who have stopped.
func (at *sharing) sweep() {
	at.all = slices.DeleteFunc(at.all, func(u *user) bool { return u.stopped.Load() })
}

// anew is s with a version above all that there are: whoever was given others
// meanwhile would take s for old news.
func (s *Snapshot) anew() *Snapshot {
	again := *s
	again.Version = versions.Add(1)
	return &again
}

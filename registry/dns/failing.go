package dns

import (
	"fmt"
	"sync"

	"github.com/remora-proxy/remora/registry"
)

// Failing knows which host names don't resolve. Their last addresses stay in use. It may serve several Watchers. Any
// goroutine may call its methods.
type Failing struct {
	contact *registry.Contact

	mu      sync.Mutex
	watches map[*watch]lookups // of services with host names
}

// lookups is how the names of one watch do.
type lookups struct {
	unasked  int // names that were not looked up yet
	resolved int // names that have resolved when they were last asked for
	failing  int
	kept     int   // addresses of the failing names
	err      error // of the first failing name, by the alphabet
}

// NewFailing returns a Failing without names.
func NewFailing() *Failing {
	return &Failing{contact: registry.NewContact(), watches: make(map[*watch]lookups)}
}

// Condition returns how the names of all services do, and how many services have names. It is up if all names resolve.
func (f *Failing) Condition() registry.Condition {
	now := f.contact.Condition()
	f.mu.Lock()
	defer f.mu.Unlock()
	now.Services = len(f.watches)
	for _, l := range f.watches {
		now.Kept += l.kept
	}
	return now
}

// set notes how the names of a watch do.
func (f *Failing) set(of *watch, names map[string]name) {
	var l lookups
	first := ""
	for host, n := range names {
		switch {
		case n.due.IsZero():
			l.unasked++
		case n.err == nil:
			l.resolved++
		default:
			l.failing++
			l.kept += len(n.addrs)
			if first == "" || host < first {
				first, l.err = host, fmt.Errorf("host %s: %w", host, n.err)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.watches, of); len(names) > 0 {
		f.watches[of] = l
	}
	f.judge()
}

// forget removes the names of a watch that has ended.
func (f *Failing) forget(of *watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A reload ends a watch before it begins the next watch of the same names: the end of the last watch says nothing of them.
	if delete(f.watches, of); len(f.watches) > 0 {
		f.judge()
	}
}

// judge decides whether names fail. f is locked.
func (f *Failing) judge() {
	unasked, resolved := 0, 0
	var err error
	for _, l := range f.watches {
		unasked, resolved = unasked+l.unasked, resolved+l.resolved
		if l.failing > 0 && (err == nil || l.err.Error() < err.Error()) {
			err = l.err
		}
	}
	switch {
	case err != nil:
		f.contact.Fail(registry.CodeUnresolved, err)
	case resolved > 0:
		f.contact.Succeed()
	case unasked == 0 && f.contact.Condition().Err != nil: // the names that failed have left; an unasked name may be one of them
		f.contact.Succeed()
	}
}

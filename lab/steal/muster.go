package steal

import "sync"

// muster waits for the watchers of all processors: a Stop that is found while some
// are not there yet is of a time that was not watched, and is dropped.
type muster struct {
	begun func()     // called once, by the last to arrive
	found func(Stop) // called from then on

	one  sync.Mutex // held in both calls
	left int        // watchers that have not arrived
}

// arrive is called once by each watcher.
func (m *muster) arrive() {
	m.one.Lock()
	defer m.one.Unlock()
	if m.left--; m.left == 0 {
		m.begun()
	}
}

// tell passes s on.
func (m *muster) tell(s Stop) {
	m.one.Lock()
	defer m.one.Unlock()
	if m.left == 0 {
		m.found(s)
	}
}

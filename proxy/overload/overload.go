package overload

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Resource is something that the process can run out of. Any goroutine may call its functions.
type Resource struct {
	Name  string
	Used  func() int64
	Limit func() int64 // in the unit of Used; 0 means no limit

	// Bounded means that something else holds the resource within its limit, and that a peer
	// can use it up alone. Such a resource is reported, and does not change the state:
	// otherwise that peer could make the process refuse all others.
	Bounded bool
}

// State says what the process does about its load.
type State uint32

// The states.
const (
	Normal State = iota
	Shedding
	Refusing
)

var stateNames = [...]string{"normal", "shedding", "refusing"}

// String returns the state's name in lower case.
func (s State) String() string { return stateNames[s] }

// The shares of a limit at which states begin and end.
const (
	shedFrom   = 0.85
	refuseFrom = 0.95
	hysteresis = 0.05
)

// next returns the state after s with this share of the limit in use.
func (s State) next(share float64) State {
	switch {
	case share >= refuseFrom, s == Refusing && share >= refuseFrom-hysteresis:
		return Refusing
	case share >= shedFrom, s != Normal && share >= shedFrom-hysteresis:
		return Shedding
	}
	return Normal
}

// Options configure a Manager. All fields but OnWork are required.
type Options struct {
	Resources []Resource
	Shed      func() // closes some idle connections; Run calls it at each sample from Shedding on
	Logger    *slog.Logger

	// OnWork calls its argument once, at the next work of the process. Streams that run already may be
	// none. nil means that the process is never at rest.
	OnWork func(func())
}

// Manager samples the resources of a process. Any goroutine may call its methods.
type Manager struct {
	opt Options
	now atomic.Pointer[verdict]

	mu      sync.Mutex
	states  []State // of each resource
	fullest float64 // the largest share of a limit in use at the last sample
	sampled time.Time

	worked  atomic.Bool   // since the last call of wait
	resting atomic.Bool   // the next sample is due after restInterval
	woken   chan struct{} // has a place; there is work after rest
}

// verdict is a state of the process and the resource that is its reason, "" in Normal.
type verdict struct {
	state  State
	reason string
}

// New returns a Manager in state Normal.
func New(o Options) *Manager {
	m := &Manager{opt: o, states: make([]State, len(o.Resources)), woken: make(chan struct{}, 1)}
	m.now.Store(&verdict{})
	m.worked.Store(true)
	return m
}

// State returns the state of the process, and the resource that is the reason, "" in Normal.
func (m *Manager) State() (s State, reason string) {
	v := m.now.Load()
	return v.state, v.reason
}

// Resources returns the resources, which must not be changed.
func (m *Manager) Resources() []Resource { return m.opt.Resources }

// Refusing reports whether a new connection must be refused. In state Refusing it samples again,
// so that the first connection after the overload is served.
func (m *Manager) Refusing() bool {
	if m.now.Load().state != Refusing {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.sampled) >= fresh {
		m.sample()
	}
	return m.now.Load().state == Refusing
}

// interval is the time between samples. It is calmInterval while less than calmShare of each limit is
// in use, and restInterval if the process has also done no work since the last sample: a sample wakes
// threads. The first work ends the rest.
const (
	interval     = 250 * time.Millisecond
	calmInterval = time.Second
	restInterval = 5 * time.Second
	calmShare    = 0.25
)

// fresh is the age at which a sample is too old to refuse a connection.
const fresh = 5 * time.Millisecond

// Run samples until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.woken:
			timer.Reset(interval)
		case <-timer.C:
			m.Sample()
			timer.Reset(m.wait())
		}
	}
}

// wait returns the time until the next sample.
func (m *Manager) wait() time.Duration {
	m.mu.Lock()
	full := m.fullest >= calmShare
	m.mu.Unlock()
	switch {
	case full:
		return interval
	case m.opt.OnWork == nil:
		return calmInterval
	case m.worked.Swap(false):
		m.opt.OnWork(m.onWork)
		return calmInterval
	}
	m.resting.Store(true)
	if m.worked.Load() && m.resting.Swap(false) {
		return interval
	}
	return restInterval
}

// onWork notes that the process works.
func (m *Manager) onWork() {
	m.worked.Store(true)
	if m.resting.Swap(false) {
		select {
		case m.woken <- struct{}{}:
		default: // Run has not seen the last one yet
		}
	}
}

// Sample reads the resources, and sheds if one of them runs out.
func (m *Manager) Sample() {
	m.mu.Lock()
	m.sample()
	m.mu.Unlock()
	if m.now.Load().state >= Shedding {
		m.opt.Shed()
	}
}

func (m *Manager) sample() {
	m.sampled, m.fullest = time.Now(), 0
	found, most := verdict{}, 0.0
	var used, limit int64
	for i := range m.opt.Resources {
		r := &m.opt.Resources[i]
		if r.Bounded {
			continue
		}
		u, l := r.Used(), r.Limit()
		share := 0.0
		if l > 0 {
			share = float64(u) / float64(l)
		}
		m.fullest = max(m.fullest, share)
		s := m.states[i].next(share)
		m.states[i] = s
		if s > found.state || s == found.state && s > Normal && share > most {
			found, most, used, limit = verdict{s, r.Name}, share, u, l
		}
	}
	if before := m.now.Load(); *before != found {
		m.change(before, found, used, limit)
	}
}

// change enters the state of v, or gives it another reason.
func (m *Manager) change(before *verdict, v verdict, used, limit int64) {
	m.now.Store(&v)
	switch v.state {
	case before.state:
		return
	case Normal:
		m.opt.Logger.Info("overload is over", "was", before.state.String(), "resource", before.reason)
		return
	}
	m.opt.Logger.Warn("overload", "state", v.state.String(), "was", before.state.String(), "resource", v.reason, "used", used, "limit", limit)
}

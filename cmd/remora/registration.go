package main

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/health"
)

// announcement keeps one endpoint of this sidecar in the registry while the
// application behind it is healthy. A goroutine checks, if there is a check; the
// first pass registers, later verdicts withdraw and restore.
type announcement struct {
	check     config.Check
	app       []string // the application's addresses
	registrar registry.Registrar
	log       *slog.Logger

	cancel context.CancelFunc // ends the goroutine
	done   chan struct{}      // closed when it has ended

	mu      sync.Mutex
	reg     registry.Registration // changed by reloads alone
	handle  registry.Handle       // nil before the first passed check
	failed  error                 // of the latest check
	healthy bool                  // by the latest verdict
	yielded bool                  // to a successor: what the checks say is not followed
}

// announcement makes what the configuration says of a registration; it starts
// nothing.
func (s *sidecar) announcement(cfg *config.Config, r *config.Register) *announcement {
	l := listener(cfg, r.Listener)
	a := &announcement{
		reg: registry.Registration{
			Service: r.Service, Node: cfg.Node.ID, Addr: r.Advertise, Weight: r.Weight,
			Zone: cfg.Node.Zone, Protocol: l.Protocol,
		},
		check: r.Check, registrar: s.etcd, log: s.log,
	}
	if app := cfg.Services[l.Service]; app != nil {
		for _, e := range app.Endpoints {
			a.app = append(a.app, e.Address)
		}
	}
	return a
}

// same tells whether two announcements announce the same, under the same
// conditions.
func (a *announcement) same(b *announcement) bool {
	return reflect.DeepEqual(a.reg, b.reg) && a.check == b.check && slices.Equal(a.app, b.app)
}

// replaces tells whether what b announces stands in the registry in the same place,
// so that the one is to become the other.
func (a *announcement) replaces(b *announcement) bool {
	return a.reg.Service == b.reg.Service && a.reg.Node == b.reg.Node && canonical(a.reg.Addr) == canonical(b.reg.Addr)
}

// canonical is the one spelling of an address.
func canonical(addr string) string {
	if canonical, _, _, err := registry.ParseAddr(addr); err == nil {
		return canonical
	}
	return addr
}

// announce registers what cfg says, now that the listeners are open, and returns
// what was registered before and is not to be any more. What stays is left alone.
// A registration that changes is put in the place of what is there: the key is never
// missing.
func (s *sidecar) announce(cfg *config.Config) (gone []*announcement) {
	old := slices.Clone(s.announcements)
	next := make([]*announcement, 0, len(cfg.Register))
	for i := range cfg.Register {
		a := s.announcement(cfg, &cfg.Register[i])
		if at := slices.IndexFunc(old, a.same); at >= 0 {
			a = old[at]
			old = slices.Delete(old, at, at+1)
		} else if at := slices.IndexFunc(old, a.replaces); at >= 0 {
			old[at].change(a)
			a = old[at]
			old = slices.Delete(old, at, at+1)
		} else {
			a.start()
		}
		next = append(next, a)
	}
	s.mu.Lock()
	s.announcements = next
	s.mu.Unlock()
	return old
}

// listener is the one with this name; the configuration has it.
func listener(cfg *config.Config, name string) *config.Listener {
	for i := range cfg.Listeners {
		if cfg.Listeners[i].Name == name {
			return &cfg.Listeners[i]
		}
	}
	return nil
}

// start begins the checks, with the verdict that there is.
func (a *announcement) start() {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.done = make(chan struct{})
	if !a.check.Enabled() {
		a.judge(true)
		close(a.done)
		return
	}
	check, app, before := checkOf(&a.check), a.app, health.Unchanged
	a.mu.Lock()
	switch {
	case a.healthy:
		before = health.Healthy
	case a.handle != nil:
		before = health.Unhealthy
	}
	a.mu.Unlock()
	go func() {
		defer close(a.done)
		health.Application(ctx, check, app, before, a.onCheck)
	}()
}

// change has the announcement announce what b would, which replaces it. The verdict
// stays, until other checks find another.
func (a *announcement) change(b *announcement) {
	a.mu.Lock()
	if !reflect.DeepEqual(a.reg, b.reg) {
		a.reg = b.reg
		if a.handle != nil {
			a.handle.Change(a.reg)
		}
	}
	a.mu.Unlock()
	if a.check == b.check && slices.Equal(a.app, b.app) {
		return
	}
	a.stop()
	a.check, a.app = b.check, b.app
	a.mu.Lock()
	a.failed = nil
	a.mu.Unlock()
	a.start()
}

// onCheck takes the outcome of a check, and the verdict if that has changed.
func (a *announcement) onCheck(err error, v health.Verdict) {
	a.mu.Lock()
	a.failed = err
	service := a.reg.Service
	a.mu.Unlock()
	switch v {
	case health.Healthy:
		a.log.Info("health check passes", "service", service)
		a.judge(true)
	case health.Unhealthy:
		a.log.Warn("health check fails; withdrawing", "service", service, "error", err)
		a.judge(false)
	}
}

// judge registers, also what was withdrawn, or withdraws; of what is yielded it
// takes a note.
func (a *announcement) judge(healthy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healthy = healthy
	if !a.yielded {
		a.follow()
	}
}

// follow brings the registry in line with the latest verdict. The caller holds mu.
func (a *announcement) follow() {
	switch {
	case a.handle == nil && a.healthy:
		a.handle = a.registrar.Register(a.reg)
	case a.handle == nil:
	case a.healthy:
		a.handle.Restore()
	default:
		a.handle.Withdraw()
	}
}

// stop ends the checks, so that none restores what leave withdraws.
func (a *announcement) stop() {
	a.cancel()
	<-a.done
}

// yield leaves the endpoint to this process's successor; resume takes it back.
func (a *announcement) yield() {
	a.mu.Lock()
	a.yielded = true
	handle := a.handle
	a.mu.Unlock()
	if handle != nil {
		handle.Yield()
	}
}

// resume follows the checks again, and what they have said meanwhile.
func (a *announcement) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.yielded = false
	a.follow()
}

// entered tells whether the endpoint is in the registry.
func (a *announcement) entered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handle != nil && a.handle.State() == registry.Registered
}

// leave takes the endpoint out for good.
func (a *announcement) leave(ctx context.Context) error {
	a.stop()
	a.mu.Lock()
	handle := a.handle
	a.mu.Unlock()
	if handle == nil {
		return nil
	}
	return handle.Close(ctx)
}

// checking is the state of an announcement whose check has not passed yet.
const checking = "checking"

func (a *announcement) status() admin.Registration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := admin.Registration{Service: a.reg.Service, Address: a.reg.Addr, State: checking}
	err := a.failed
	if a.handle != nil {
		out.State = a.handle.State().String()
		if e := a.handle.Err(); e != nil {
			err = e
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// registrations lists them for the admin API, in the order of the configuration.
func (s *sidecar) registrations() []admin.Registration {
	if s.admin.Phase() == admin.Starting {
		return nil // announce is not through
	}
	s.mu.Lock()
	all := s.announcements
	s.mu.Unlock()
	out := make([]admin.Registration, len(all))
	for i, a := range all {
		out[i] = a.status()
	}
	return out
}

package sidecar

import (
	"context"
	"crypto/tls"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/health"
)

// registration keeps one endpoint of this sidecar in the registry while the
// application behind it is healthy. If there is a check, a goroutine runs it: the
// first success registers the endpoint, later verdicts withdraw and restore it.
type registration struct {
	check     config.Check
	app       []string                            // the application's addresses
	identity  *certs.Source                       // of the application's service; nil means no tls block
	sni       string                              // of the same service
	tls       func(addr, host string) *tls.Config // of the check, made of identity and sni; nil means plain text
	registrar registry.Registrar
	log       *slog.Logger

	cancel context.CancelFunc // ends the goroutine
	done   chan struct{}      // closed when it has ended

	mu      sync.Mutex
	reg     registry.Registration // only reloads change it
	handle  registry.Handle       // nil before the first success of the check
	failed  error                 // result of the last check
	healthy bool                  // last verdict
	yielded bool                  // whether a successor owns the endpoint; verdicts then have no effect
}

// equal reports whether two registrations register the same, with the same checks.
func (a *registration) equal(b *registration) bool {
	return reflect.DeepEqual(a.reg, b.reg) && a.sameChecks(b)
}

// sameChecks reports whether two registrations have the same checks.
func (a *registration) sameChecks(b *registration) bool {
	sameTLS := a.identity == b.identity && a.sni == b.sni && (a.tls == nil) == (b.tls == nil)
	return a.check == b.check && slices.Equal(a.app, b.app) && sameTLS
}

// sameKey reports whether two registrations have the same key in the registry.
func (a *registration) sameKey(b *registration) bool {
	return a.reg.Service == b.reg.Service && a.reg.Node == b.reg.Node && canonical(a.reg.Addr) == canonical(b.reg.Addr)
}

// canonical returns the canonical form of an address.
func canonical(addr string) string {
	if a, err := registry.ParseAddr(addr); err == nil {
		return a.String()
	}
	return addr
}

// start starts the checks. They begin with the current verdict.
func (a *registration) start() {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.done = make(chan struct{})
	if !a.check.Enabled() {
		a.setHealthy(true)
		close(a.done)
		return
	}
	check, app, before := healthCheck(&a.check, a.tls), a.app, health.Unchanged
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

// change makes the registration equal to b. The verdict stays until a new check changes it.
func (a *registration) change(b *registration) {
	a.mu.Lock()
	if !reflect.DeepEqual(a.reg, b.reg) {
		a.reg = b.reg
		if a.handle != nil {
			a.handle.Change(a.reg)
		}
	}
	a.mu.Unlock()
	if a.sameChecks(b) {
		return
	}
	a.stop()
	a.check, a.app, a.identity, a.sni, a.tls = b.check, b.app, b.identity, b.sni, b.tls
	a.mu.Lock()
	a.failed = nil
	a.mu.Unlock()
	a.start()
}

// onCheck records the result of a check, and the verdict if that has changed.
func (a *registration) onCheck(err error, v health.Verdict) {
	a.mu.Lock()
	a.failed = err
	service := a.reg.Service
	a.mu.Unlock()
	switch v {
	case health.Healthy:
		a.log.Info("health check passes", "service", service)
		a.setHealthy(true)
	case health.Unhealthy:
		a.log.Warn("health check fails; withdrawing", "service", service, "error", err)
		a.setHealthy(false)
	}
}

// setHealthy applies a verdict to the registry. While the registration is yielded it
// only records the verdict.
func (a *registration) setHealthy(healthy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healthy = healthy
	if !a.yielded {
		a.applyVerdict()
	}
}

// applyVerdict registers, restores or withdraws the endpoint by the last verdict. The
// caller holds mu.
func (a *registration) applyVerdict() {
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

// stop stops the checks. remove needs this, or a check could restore the endpoint.
func (a *registration) stop() {
	a.cancel()
	<-a.done
}

// yield gives the endpoint to this process's successor; resume takes it back.
func (a *registration) yield() {
	a.mu.Lock()
	a.yielded = true
	handle := a.handle
	a.mu.Unlock()
	if handle != nil {
		handle.Yield()
	}
}

// resume applies the last verdict, and all later ones.
func (a *registration) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.yielded = false
	a.applyVerdict()
}

// isRegistered reports whether the endpoint is in the registry.
func (a *registration) isRegistered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handle != nil && a.handle.State() == registry.Registered
}

// isPending reports whether the registry was asked for the endpoint and has not confirmed it.
func (a *registration) isPending() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handle != nil && a.handle.State() == registry.Pending
}

// remove stops the checks and removes the endpoint from the registry.
func (a *registration) remove(ctx context.Context) error {
	a.stop()
	a.mu.Lock()
	handle := a.handle
	a.mu.Unlock()
	if handle == nil {
		return nil
	}
	return handle.Close(ctx)
}

// checking is the state of a registration whose check has not succeeded yet.
const checking = "checking"

func (a *registration) status() admin.Registration {
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

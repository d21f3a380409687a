package sidecar

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// registrations are this sidecar's own endpoints in the registry. Reloads change them, a drain removes them, and a
// hot restart yields them to the successor.
type registrations struct {
	registrar registry.Registrar // nil if no registry can register
	log       *slog.Logger

	mu  sync.Mutex // held for changes of all, and by stats, which the admin API calls
	all []*registration
}

// of returns the registration of c without starting it. ids are the identities of cfg.
func (r *registrations) of(cfg *config.Config, c *config.Register, ids identities) *registration {
	hasName := func(l config.Listener) bool { return l.Name == c.Listener }
	l := &cfg.Listeners[slices.IndexFunc(cfg.Listeners, hasName)]
	a := &registration{
		reg: registry.Registration{
			Service: c.Service, Node: cfg.Node.ID, Addr: c.Advertise, Weight: c.Weight,
			Zone: cfg.Node.Zone, Protocol: l.Protocol,
		},
		check: c.Check, registrar: r.registrar, log: r.log,
	}
	if app := cfg.Services[l.Service]; app != nil {
		a.identity, a.sni = ids.ofService(app.Name), app.TLS.SNI
		a.tls = checkTLS(app, a.identity)
		for _, e := range app.Endpoints {
			a.app = append(a.app, e.Address)
		}
	}
	return a
}

// update starts the registrations of cfg, whose identities are ids, and returns those that cfg no
// longer has. Unchanged ones stay as they are. A changed one is overwritten, so that
// its key is never missing. The listeners must be open.
func (r *registrations) update(cfg *config.Config, ids identities) (gone []*registration) {
	old := slices.Clone(r.all)
	next := make([]*registration, 0, len(cfg.Register))
	for i := range cfg.Register {
		a := r.of(cfg, &cfg.Register[i], ids)
		at := slices.IndexFunc(old, a.equal)
		if at < 0 {
			at = slices.IndexFunc(old, a.sameKey)
		}
		if at < 0 {
			a.start()
		} else {
			old[at].change(a)
			a = old[at]
			old = slices.Delete(old, at, at+1)
		}
		next = append(next, a)
	}
	r.mu.Lock()
	r.all = next
	r.mu.Unlock()
	return old
}

// remove removes registrations from the registry, concurrently, and
// reports whether there were any.
func (r *registrations) remove(all []*registration) bool {
	// Not part of timeouts.drain: even if that is 0, consumers must not see errors
	// until the lease expires.
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	var tasks sync.WaitGroup
	for _, a := range all {
		tasks.Go(func() {
			if err := a.remove(ctx); err != nil {
				r.log.Warn("registration not removed; its lease will expire", "service", a.reg.Service, "error", err)
			}
		})
	}
	tasks.Wait()
	return len(all) > 0
}

// yield yields all registrations to a successor, concurrently.
func (r *registrations) yield() {
	var tasks sync.WaitGroup
	for _, a := range r.all {
		tasks.Go(a.yield)
	}
	tasks.Wait()
}

// resume takes all registrations back from a successor that does not serve.
func (r *registrations) resume() {
	for _, a := range r.all {
		a.resume()
	}
}

// registered reports whether all registrations are in the registry.
func (r *registrations) registered() bool {
	for _, a := range r.all {
		if !a.isRegistered() {
			return false
		}
	}
	return true
}

// settled reports whether no registration waits for the registry.
func (r *registrations) settled() bool {
	return !slices.ContainsFunc(r.all, (*registration).isPending)
}

// stop stops the checks of all registrations.
func (r *registrations) stop() {
	for _, a := range r.all {
		a.stop()
	}
}

// stats lists the registrations for the admin API, in the order of the configuration.
func (r *registrations) stats() []admin.Registration {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	out := make([]admin.Registration, len(all))
	for i, a := range all {
		out[i] = a.status()
	}
	return out
}

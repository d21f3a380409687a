package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// Codes of refused reloads, which changed nothing. They are stable.
const (
	// the file can't be read, or has the errors that `remora check` prints
	refusedInvalid = "invalid"
	// a key has changed that needs a restart: restart, or put it back
	refusedRestart = "needs_restart"
	// the files of a new tls block can't be used
	refusedIdentity = "certificate"
	// a listener's address can't be bound
	refusedListen = "listen"
	// the access log can't be opened: make its folder, or correct the path
	refusedAccessLog = "access_log"
	// a new service has no endpoints after 5 s, or none of the host names that replace its
	// endpoints resolves: correct the names, or try again
	refusedEndpoints = "endpoints_unknown"
	// the process drains or is being replaced: reload the other one
	refusedDraining = "draining"
)

// Outcomes of reloads that were not refused.
const (
	outcomeApplied   = "applied"
	outcomeUnchanged = "unchanged"
)

// outcomes are all outcomes of reloads.
var outcomes = []string{
	outcomeApplied, outcomeUnchanged, refusedInvalid, refusedRestart, refusedIdentity, refusedListen,
	refusedAccessLog, refusedEndpoints, refusedDraining,
}

// refusal is the error of a refused reload.
type refusal struct {
	code   string
	reason error
}

func (r *refusal) Error() string { return r.code + ": " + r.reason.Error() }
func (r *refusal) Unwrap() error { return r.reason }

// endpointsTimeout bounds how long a start or a reload waits for the endpoints of new
// services.
const endpointsTimeout = 5 * time.Second

// reload applies the configuration in file. If that is refused it changes nothing,
// records the reason, and reports whether that may pass without another change of the
// file.
func (s *Sidecar) reload(file string) (mayPass bool) {
	if !s.changing.TryLock() { // not held by a reload: there is one at a time
		s.recordReload("", &refusal{refusedDraining, errors.New("the sidecar is draining, or about to be replaced")})
		return s.admin.Phase() <= admin.Serving // a successor may fail
	}
	defer s.changing.Unlock()
	outcome, err := outcomeUnchanged, error(nil)
	cfg, bad := config.Load(file)
	switch {
	case bad != nil:
		err = &refusal{refusedInvalid, bad}
	case cfg.Equal(s.cfg):
	default:
		LogWarnings(s.log, cfg)
		outcome, err = outcomeApplied, s.change(cfg)
	}
	s.recordReload(outcome, err)
	s.releasePages()
	var refused *refusal
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.code { // not refusedEndpoints: each try takes 5 s, in which no hot restart can begin
	case refusedIdentity, refusedListen, refusedAccessLog:
		return true
	}
	return false
}

// recordReload counts and logs a reload.
func (s *Sidecar) recordReload(outcome string, err error) {
	refused := admin.Refusal{}
	if r, ok := err.(*refusal); ok {
		outcome = r.code
		refused = admin.Refusal{At: time.Now(), Code: r.code, Reason: r.reason.Error()}
		s.log.Error("configuration refused; nothing has changed", "code", r.code, "reason", refused.Reason)
	} else {
		s.log.Info("configuration reloaded", "outcome", outcome, "generation", s.proc.Generation().Number())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reloads.Outcomes[outcome]++
	s.reloads.Refused = refused
	if outcome == outcomeApplied {
		s.reloads.Since = time.Now()
	}
}

// reloadStats returns a copy of the counts for the admin API.
func (s *Sidecar) reloadStats() admin.ReloadStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.reloads
	st.Outcomes = maps.Clone(st.Outcomes)
	return st
}

// change applies a configuration. All steps that can fail come first, and abandon
// undoes them; apply can't fail.
type change struct {
	s          *Sidecar
	cfg        *config.Config
	gen        *proxy.Generation
	identities identities
	access     *accesslog.Writer
	opened     []*openListener
	from       map[net.Listener]*openListener // the ending listeners whose sockets may be taken over
	sources    map[string]*source             // those of new services; updateSources adds the others
}

// change applies cfg. The error is a *refusal, or nil.
func (s *Sidecar) change(cfg *config.Config) error {
	if keys := fixedKeys(s.cfg, cfg); len(keys) > 0 {
		return &refusal{refusedRestart, fmt.Errorf("%s: needs a restart", strings.Join(keys, ", "))}
	}
	c := &change{s: s, cfg: cfg, sources: make(map[string]*source)}
	err := c.open()
	if err == nil {
		err = c.prepare()
	}
	s.leaving.passing.Lock()
	defer s.leaving.passing.Unlock()
	if err == nil {
		err = c.bind()
	}
	if err != nil {
		c.abandon()
		return err
	}
	c.apply()
	return nil
}

// open opens the files of the configuration.
func (c *change) open() (err error) {
	if c.identities, err = openIdentities(c.cfg, c.s.identities, c.s.log, c.s.engine.RecheckPeers); err != nil {
		return &refusal{refusedIdentity, err}
	}
	if c.access, err = c.s.openAccessLog(c.cfg); err != nil {
		return &refusal{refusedAccessLog, err}
	}
	return nil
}

// prepare creates the new generation, starts the sources of new services, and waits
// until each loop knows their endpoints: otherwise the first requests would fail.
func (c *change) prepare() error {
	ready := make(chan struct{})
	c.gen = c.s.proc.Prepare(c.cfg, func() { close(ready) })
	<-ready
	for _, name := range c.gen.Added() {
		src, err := c.s.startSource(c.cfg.Services[name], c.identities.ofService(name), c.s.sources[name].state(), c.gen.Update)
		if err != nil {
			return &refusal{refusedInvalid, err}
		}
		c.sources[name] = src
	}
	if err := c.s.endpointsKnown(c.gen); err != nil {
		return &refusal{refusedEndpoints, err}
	}
	return nil
}

// endpointsKnown waits until the loops know the endpoints of the services that are new
// in g.
func (s *Sidecar) endpointsKnown(g *proxy.Generation) error {
	ctx, cancel := context.WithTimeout(s.ended, endpointsTimeout)
	defer cancel()
	if poll(ctx, g.Known) {
		return nil
	}
	return fmt.Errorf("no endpoints known after %s for at least one of the services %s", endpointsTimeout, strings.Join(g.Added(), ", "))
}

// abandon undoes the steps before apply.
func (c *change) abandon() {
	c.identities.closeExcept(c.s.identities)
	if c.access != c.s.access.writer.Load() {
		_ = closeAccessLog(c.access)
	}
	for _, l := range c.opened {
		_ = l.close()
	}
	for _, src := range c.sources {
		src.stop()
	}
}

// apply puts the change into use.
func (c *change) apply() {
	s, before := c.s, c.s.cfg
	s.clientCerts.set(s.proc.Generation(), c.gen, c.identities, s.proc.Pending() > 0)
	if !reflect.DeepEqual(before.Tracing, c.cfg.Tracing) {
		s.spans.Configure(&c.cfg.Tracing)
	}
	c.gen.LogTo(queueOf(c.access))
	done := make(chan struct{})
	s.proc.Switch(c.gen, func() { close(done) })
	<-done

	s.cfg = c.cfg
	old, unused := s.identities, s.access.writer.Load()
	s.mu.Lock()
	s.identities = c.identities
	s.mu.Unlock()
	s.access.writer.Store(c.access)
	closed := c.updateListeners()
	s.engine.RecheckPeers() // by the peers of the listeners
	c.updateSources()
	old.closeExcept(c.identities)
	gone := s.updateRegistrations(c.cfg)
	limitMemory(c.cfg)
	s.engine.SetWriteStall(c.cfg.Timeouts.Write)
	if level, ok := admin.LogLevel(c.cfg.Log.Level); ok && c.cfg.Log.Level != before.Log.Level {
		s.level.Set(level)
	}
	if unused != c.access {
		s.retiring.Go(func() {
			if err := closeAccessLog(unused); err != nil {
				s.log.Warn("previous access log closed", "error", err)
			}
		})
	}
	s.retiring.Go(func() { s.retire(gone, closed, c.cfg.Timeouts.Drain) })
}

// updateSources stops the sources of removed services, and replaces those that have
// changed.
func (c *change) updateSources() {
	s := c.s
	for name, src := range s.sources {
		svc := c.cfg.Services[name]
		switch {
		case svc == nil:
			src.stop()
			s.streams.SetDown(name, nil)
			continue
		case c.sources[name] != nil:
			src.stop()
			continue
		case !src.suits(svc):
			var err error
			if src, err = s.replaceSource(src, svc, c.identities.ofService(name), c.gen.Update); err != nil { // an address that the validation accepted
				s.log.Error("endpoints not watched; the known ones stay in use", "service", name, "error", err)
				src = &source{cfg: svc}
			}
		}
		c.sources[name] = src
	}
	s.sources = c.sources
}

// retire removes the registrations that a reload has dropped, and then, after consumers
// had time to notice, closes the listeners. Link ports stay open as long as another
// sidecar may fetch a parked response.
func (s *Sidecar) retire(gone []*registration, closed []*openListener, drain time.Duration) {
	s.removeRegistrations(gone)
	if len(closed) == 0 {
		return
	}
	sleep(s.ended, noticeDelay)
	ctx, cancel := context.WithTimeout(s.ended, drain)
	defer cancel()
	for _, l := range closed {
		if l.core.DrainLast() {
			poll(ctx, func() bool { return l.core.Links() == 0 && s.streams.Parked() == 0 })
		}
		s.leaving.remove(l, s.closeListener)
		s.log.Info("listener closed", "listener", l.name, "address", l.address)
	}
}

// fixedKeys returns the keys that differ between two configurations and can't change
// while the process runs.
func fixedKeys(old, cfg *config.Config) (keys []string) {
	type setting struct {
		key      string
		old, new any
	}
	for _, s := range []setting{
		{"node", old.Node, cfg.Node},
		{"loops", old.Loops, cfg.Loops},
		{"engine", old.Engine, cfg.Engine},
		{"log.format", old.Log.Format, cfg.Log.Format},
		{"admin.address", old.Admin.Address, cfg.Admin.Address},
		{"admin.token", old.Admin.Token, cfg.Admin.Token},
		{"registry", old.Registry, cfg.Registry},
		{"limits.connections", old.Limits.Connections, cfg.Limits.Connections},
		{"timeouts.detect", old.Timeouts.Detect, cfg.Timeouts.Detect},
		{"limits.per_source", old.Limits.PerSource, cfg.Limits.PerSource},
		{"limits.admin_connections", old.Limits.AdminConnections, cfg.Limits.AdminConnections},
	} {
		if !reflect.DeepEqual(s.old, s.new) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/registry"
)

// Codes of refused reloads, which changed nothing. They are stable.
const (
	// the file can't be read, or has the errors that `remora check` prints
	refusedInvalid = "invalid"
	// an overlay sets a key that it [may never change](fleet.md#what-an-overlay-may-never-change)
	refusedFixed = "fixed_key"
	// the [revision](fleet.md) that this sidecar should run is not in etcd, or can't be read: roll back to another one
	refusedRevision = "no_revision"
	// the file changes a key that takes effect only at a restart: restart, or undo the change of that key
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
	outcomeApplied, outcomeUnchanged, refusedInvalid, refusedFixed, refusedRevision, refusedRestart, refusedIdentity, refusedListen,
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
// services, and how long a start waits for the registry to confirm its own.
const endpointsTimeout = 5 * time.Second

// reloads apply changed configurations to a running sidecar, one at a time, and count them.
type reloads struct {
	s        *Sidecar
	file     *ConfigFile    // nil without one
	turn     sync.Mutex     // held by a reload: there is one at a time
	revision fleet.Revision // of the overlay in use; guarded by turn
	applied  func()         // is called after each reload of the file that was applied

	mu     sync.Mutex
	counts admin.ReloadStats
}

// newReloads returns the reloads of s, of which there was none yet.
func newReloads(s *Sidecar, file *ConfigFile) *reloads {
	r := &reloads{s: s, file: file, counts: admin.ReloadStats{Since: time.Now(), Outcomes: make(map[string]uint64)}}
	for _, outcome := range outcomes { // a metric's rate needs a 0 before the first event
		r.counts.Outcomes[outcome] = 0
	}
	return r
}

// reload applies the configuration in the file, with the overlay in use. A refused configuration changes nothing. reload records
// the reason, and reports whether the reason may pass without another change of the file.
func (r *reloads) reload() (mayPass bool) {
	r.turn.Lock()
	refused := r.load(r.revision)
	if refused != nil && refused.code == refusedDraining {
		r.refuse(0, refused)
	}
	r.turn.Unlock()
	r.applied() // also if refused: a revision that was refused may fit the file now, where the revision in use does not
	if refused == nil {
		return false
	}
	switch refused.code { // not refusedEndpoints: each try takes 5 s, in which no hot restart can begin
	case refusedIdentity, refusedListen, refusedAccessLog:
		return true
	case refusedDraining:
		return r.s.admin.Phase() <= admin.Serving // a successor may fail
	}
	return false
}

// useRevision applies the file with another revision of the overlay. A refused revision changes nothing. The reason is
// returned and, unless it is that the sidecar drains, recorded.
func (r *reloads) useRevision(next fleet.Revision) *refusal {
	r.turn.Lock()
	defer r.turn.Unlock()
	if next.Same(&r.revision) {
		return nil
	}
	refused := r.load(next)
	if refused == nil {
		r.revision = next
	}
	return refused
}

// load applies the file with a revision of the overlay, and records the outcome, unless the sidecar drains. The caller
// holds turn.
func (r *reloads) load(revision fleet.Revision) *refusal {
	s := r.s
	if !s.changing.TryLock() {
		return &refusal{refusedDraining, errors.New("the sidecar is draining, or about to be replaced")}
	}
	defer s.changing.Unlock()
	outcome, refused := outcomeUnchanged, (*refusal)(nil)
	cfg, bad := config.LoadWith(r.file.path, revision.Overlay())
	switch {
	case bad != nil:
		refused = &refusal{codeOf(bad), bad}
	case cfg.Equal(s.cfg):
	default:
		LogWarnings(s.log, cfg)
		outcome = outcomeApplied
		errors.As(r.apply(cfg), &refused)
	}
	switch {
	case refused == nil:
		s.log.Info("configuration reloaded", withRevision(revision.Number, "outcome", outcome, "generation", s.proc.Generation().Number())...)
		r.count(outcome, admin.Refusal{})
	case refused.code != refusedDraining:
		r.refuse(revision.Number, refused)
	}
	s.releasePages()
	return refused
}

// codeOf returns the code for a configuration that could not be loaded.
func codeOf(err error) string {
	var all config.Errors
	if errors.As(err, &all) && slices.ContainsFunc(all, func(e config.Error) bool { return e.Fixed }) {
		return refusedFixed
	}
	return refusedInvalid
}

// refuse counts and logs a refused reload with a revision of the overlay.
func (r *reloads) refuse(revision int64, why *refusal) {
	reason := why.reason.Error()
	r.s.log.Error("configuration refused; nothing has changed", withRevision(revision, "code", why.code, "reason", reason)...)
	r.count(why.code, admin.Refusal{At: time.Now(), Code: why.code, Reason: reason})
}

// withRevision returns the attributes of a line of the log, with that of the revision of the overlay if there is one.
func withRevision(revision int64, attributes ...any) []any {
	if revision == 0 {
		return attributes
	}
	return append(attributes, "revision", revision)
}

// count counts a reload. refused is zero if it was not refused.
func (r *reloads) count(outcome string, refused admin.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Outcomes[outcome]++
	r.counts.Refused = refused
	if outcome == outcomeApplied {
		r.counts.Since = time.Now()
	}
}

// stats returns a copy of the counts for the admin API.
func (r *reloads) stats() admin.ReloadStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.counts
	st.Outcomes = maps.Clone(st.Outcomes)
	return st
}

// change applies a configuration in four steps: open, prepare, bind and commit. The first three can fail, and abandon
// undoes them. commit can't fail.
type change struct {
	s   *Sidecar
	cfg *config.Config

	// Of open.
	identities identities
	access     *accesslog.Writer
	// Of prepare.
	gen       *proxy.Generation
	sources   map[string]*source // of new services; updateSources adds the others
	committed atomic.Bool
	// Of bind.
	opened []*openListener
	from   map[net.Listener]*openListener // the ending listeners whose sockets may be taken over
}

// apply applies cfg. The caller holds changing. The error is a *refusal, or nil.
func (r *reloads) apply(cfg *config.Config) error {
	s := r.s
	if keys := fixedKeys(s.cfg, cfg); len(keys) > 0 {
		return &refusal{refusedRestart, fmt.Errorf("%s: needs a restart", strings.Join(keys, ", "))}
	}
	c := &change{s: s, cfg: cfg, sources: make(map[string]*source)}
	err := c.open()
	if err == nil {
		err = c.prepare()
	}
	s.listeners.removed.takeover.Lock()
	defer s.listeners.removed.takeover.Unlock()
	if err == nil {
		err = c.bind()
	}
	if err != nil {
		c.abandon()
		return err
	}
	c.commit()
	return nil
}

// open opens the files of the configuration.
func (c *change) open() (err error) {
	if c.identities, err = openIdentities(c.cfg, c.s.identities, c.s.log, c.s.reactor.Trust().Recheck); err != nil {
		return &refusal{refusedIdentity, err}
	}
	if c.access, err = c.s.access.open(&c.cfg.AccessLog, len(c.s.reactor.Loops())); err != nil {
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
	if err := c.s.discovery.connectMissing(c.cfg, c.identities); err != nil {
		return &refusal{refusedInvalid, err}
	}
	for _, name := range c.gen.Added() {
		src, err := c.s.sources.start(c.cfg.Services[name], c.identities.ofService(name), c.s.sources.byService[name].state(), c.updateResolved)
		if err != nil {
			return &refusal{refusedInvalid, err}
		}
		c.sources[name] = src
	}
	err := endpointsKnown(c.s.drains, c.gen)
	switch {
	case err == nil:
		return nil
	case c.s.drains.Err() != nil:
		return &refusal{refusedDraining, errors.New("the sidecar has begun to drain")}
	}
	return &refusal{refusedEndpoints, err}
}

// updateResolved updates the endpoints of a new service. If the service replaces one that has endpoints, none of its own may mean that
// its host names do not resolve: the reload is refused then, so the loops must not take that for knowledge.
func (c *change) updateResolved(snap *registry.Snapshot) {
	if len(snap.Endpoints) == 0 && snap.Unresolved && !c.committed.Load() {
		if now := c.s.proc.Snapshot(snap.Service); now != nil && len(now.Endpoints) > 0 {
			return
		}
	}
	c.gen.Update(snap)
}

// endpointsKnown waits until the loops know the endpoints of the services that are new
// in g. The end of ended ends the wait.
func endpointsKnown(ended context.Context, g *proxy.Generation) error {
	ctx, cancel := context.WithTimeout(ended, endpointsTimeout)
	defer cancel()
	if poll(ctx, g.Known) {
		return nil
	}
	return fmt.Errorf("no endpoints known after %s for at least one of the services %s", endpointsTimeout, strings.Join(g.Added(), ", "))
}

// abandon undoes the steps before commit.
func (c *change) abandon() {
	c.s.discovery.reach.settle(c.s.cfg, c.s.boundNames())
	c.s.sources.judgeAgain()
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

// commit puts the change into use.
func (c *change) commit() {
	s, before := c.s, c.s.cfg
	c.committed.Store(true)
	// The loops switch to the new generation. Client certificates and the access log of the generation come before
	// its first request.
	s.clientCerts.set(s.proc.Generation(), c.gen, c.identities, s.proc.Pending() > 0)
	if !reflect.DeepEqual(before.Tracing, c.cfg.Tracing) {
		s.spans.Configure(&c.cfg.Tracing)
	}
	c.gen.LogTo(queueOf(c.access))
	done := make(chan struct{})
	s.proc.Switch(c.gen, func() { close(done) })
	<-done

	// The parts of the process follow. Listeners follow the loops: a new listener needs the generation.
	s.cfg = c.cfg
	old, oldWriter := s.identities, s.access.writer.Load()
	s.mu.Lock()
	s.identities = c.identities
	s.mu.Unlock()
	s.access.use(c.access, &c.cfg.AccessLog)
	s.discovery.reach.settle(c.cfg, s.boundNames(c.opened...)) // before the new listeners accept
	s.sources.judgeAgain()
	closed := c.updateListeners()
	s.reactor.Trust().Recheck() // after the listeners, which say what peers may connect
	c.updateSources()
	old.closeExcept(c.identities)
	gone := s.registrations.update(c.cfg, c.identities)
	limitMemory(c.cfg)
	s.reactor.SetWriteStall(c.cfg.Timeouts.Write)
	if level, ok := admin.LogLevel(c.cfg.Log.Level); ok && c.cfg.Log.Level != before.Log.Level {
		s.level.Set(level)
	}

	// What is not used any more ends in the background: clients and consumers need time.
	if oldWriter != c.access {
		s.background.Go(func() {
			if err := closeAccessLog(oldWriter); err != nil {
				s.log.Warn("previous access log closed", "error", err)
			}
		})
	}
	s.background.Go(func() { s.retire(gone, closed, c.cfg.Timeouts.Drain) })
}

// updateSources stops the sources of removed services, and replaces those that have
// changed.
func (c *change) updateSources() {
	s := c.s
	for name, src := range s.sources.byService {
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
			if src, err = s.sources.replace(src, svc, c.identities.ofService(name), c.gen.Update); err != nil { // an address that the validation accepted
				s.log.Error("endpoints not watched; the known ones stay in use", "service", name, "error", err)
				src = &source{cfg: svc, inUse: true}
			}
		}
		c.sources[name] = src
	}
	for _, src := range c.sources {
		src.use()
	}
	s.sources.byService = c.sources
}

// retire removes the registrations that a reload has dropped, and then, after consumers
// had time to notice, closes the listeners: last the link ports, which stay open as long as
// another sidecar may fetch a parked response.
func (s *Sidecar) retire(gone []*registration, closed []*openListener, drain time.Duration) {
	s.registrations.remove(gone)
	if len(closed) == 0 {
		return
	}
	sleep(s.ended, noticeDelay)
	ctx, cancel := context.WithTimeout(s.ended, drain)
	defer cancel()
	for _, last := range []bool{false, true} {
		for _, l := range closed {
			if l.core.DrainLast() != last {
				continue
			}
			if last {
				poll(ctx, func() bool { return l.core.Links() == 0 && s.streams.Parked() == 0 })
			}
			s.listeners.removed.remove(l, s.listeners.close)
			s.log.Info("listener closed", "listener", l.name, "address", l.address)
		}
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
		{"config", old.Overlays, cfg.Overlays},
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

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// Why a reload has changed nothing: stable codes.
const (
	refusedInvalid   = "invalid"           // the file can't be read, or is no valid configuration
	refusedRestart   = "needs_restart"     // a key has changed that can't while the process runs
	refusedIdentity  = "certificate"       // the files of a tls block are no good
	refusedListen    = "listen"            // a listener's address can't be bound
	refusedAccessLog = "access_log"        // the access log can't be opened
	refusedEndpoints = "endpoints_unknown" // nobody says which endpoints a new service has
	refusedDraining  = "draining"          // the process is about to end
)

// Outcomes of reloads that were not refused.
const (
	outcomeApplied   = "applied"
	outcomeUnchanged = "unchanged"
)

// outcomes are all there are.
var outcomes = []string{
	outcomeApplied, outcomeUnchanged, refusedInvalid, refusedRestart, refusedIdentity, refusedListen,
	refusedAccessLog, refusedEndpoints, refusedDraining,
}

// refusal is the error of a reload that has changed nothing.
type refusal struct {
	code   string
	reason error
}

func (r *refusal) Error() string { return r.code + ": " + r.reason.Error() }
func (r *refusal) Unwrap() error { return r.reason }

// learnTimeout bounds how long a start, or a reload, waits for the endpoints of new
// services.
const learnTimeout = 5 * time.Second

// reload puts the configuration in file in the place of the one in use, or changes
// nothing and says why.
func (s *sidecar) reload(file string) {
	if !s.changing.TryLock() { // reloads come one after another
		s.note("", &refusal{refusedDraining, errors.New("the sidecar is draining, or about to be replaced")})
		return
	}
	defer s.changing.Unlock()
	outcome, err := outcomeUnchanged, error(nil)
	cfg, bad := config.Load(file)
	switch {
	case bad != nil:
		err = &refusal{refusedInvalid, bad}
	case reflect.DeepEqual(cfg, s.cfg):
	default:
		outcome, err = outcomeApplied, s.change(cfg)
	}
	s.note(outcome, err)
}

// note counts a reload, and tells of it.
func (s *sidecar) note(outcome string, err error) {
	refused := admin.Refusal{}
	if r, ok := err.(*refusal); ok {
		outcome = r.code
		refused = admin.Refusal{At: time.Now(), Code: r.code, Reason: r.reason.Error()}
		s.log.Error("configuration refused, nothing has changed", "code", r.code, "reason", refused.Reason)
	} else {
		s.log.Info("configuration read again", "outcome", outcome, "generation", s.proc.Generation().Number())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reloads.Outcomes[outcome]++
	s.reloads.Refused = refused
	if outcome == outcomeApplied {
		s.reloads.Since = time.Now()
	}
}

// reloadStats is a copy for the admin API.
func (s *sidecar) reloadStats() admin.ReloadStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.reloads
	st.Outcomes = make(map[string]uint64, len(s.reloads.Outcomes))
	for outcome, n := range s.reloads.Outcomes {
		st.Outcomes[outcome] = n
	}
	return st
}

// change is a configuration on its way into use. All that can fail comes first,
// and abandon undoes it.
type change struct {
	s          *sidecar
	cfg        *config.Config
	gen        *proxy.Generation
	identities identities
	access     *accesslog.Writer
	opened     []*listening
	sources    map[string]*source // of services that are new
}

// change applies cfg. The error is a *refusal, or nil.
func (s *sidecar) change(cfg *config.Config) error {
	if keys := frozen(s.cfg, cfg); len(keys) > 0 {
		return &refusal{refusedRestart, fmt.Errorf("%s: needs a restart", strings.Join(keys, ", "))}
	}
	c := &change{s: s, cfg: cfg, sources: make(map[string]*source)}
	for _, step := range []func() error{c.openIdentities, c.openAccessLog, c.bind, c.learn} {
		if err := step(); err != nil {
			c.abandon()
			return err
		}
	}
	c.apply()
	return nil
}

func (c *change) openIdentities() (err error) {
	if c.identities, err = openIdentities(c.cfg, c.s.identities, c.s.log); err != nil {
		return &refusal{refusedIdentity, err}
	}
	return nil
}

func (c *change) openAccessLog() (err error) {
	if c.access, err = c.s.openAccessLog(c.cfg); err != nil {
		return &refusal{refusedAccessLog, err}
	}
	return nil
}

// bind opens the addresses that are new. Nobody is accepted there yet; who connects
// waits.
func (c *change) bind() error {
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if old := c.s.listeners[l.Name]; old != nil && old.address == l.Address {
			continue
		}
		opened, err := c.s.bind(l)
		if err != nil {
			return &refusal{refusedListen, err}
		}
		c.opened = append(c.opened, opened)
	}
	return nil
}

// learn makes the loops ready for the services that are new, and waits until each
// knows their endpoints: the first request is not to fail for being early.
func (c *change) learn() error {
	ready := make(chan struct{})
	c.gen = c.s.proc.Prepare(c.cfg, func() { close(ready) })
	<-ready
	for _, name := range c.gen.Added() {
		src, err := c.s.follow(c.cfg.Services[name], c.s.sources[name].leaves(), c.gen.Update)
		if err != nil {
			return &refusal{refusedInvalid, err}
		}
		c.sources[name] = src
	}
	if err := c.s.known(c.gen); err != nil {
		return &refusal{refusedEndpoints, err}
	}
	return nil
}

// known waits until the loops know the endpoints of the services that are new in g.
func (s *sidecar) known(g *proxy.Generation) error {
	ctx, cancel := context.WithTimeout(s.ended, learnTimeout)
	defer cancel()
	if until(ctx, g.Known) {
		return nil
	}
	return fmt.Errorf("no endpoints known after %s of one of the services %s", learnTimeout, strings.Join(g.Added(), ", "))
}

// abandon gives up what was made for the change.
func (c *change) abandon() {
	c.identities.closeBut(c.s.identities)
	if c.access != c.s.access {
		_ = c.s.closeAccessLog(c.access)
	}
	for _, l := range c.opened {
		_ = l.close()
	}
	for _, src := range c.sources {
		src.stop()
	}
}

// apply brings the change into use. From here on nothing fails.
func (c *change) apply() {
	s, before := c.s, c.s.cfg
	dialing := s.dialersOf(c.cfg, c.identities)
	s.dialing.Store(&dialing)
	if !reflect.DeepEqual(before.Tracing, c.cfg.Tracing) {
		s.spans.Configure(&c.cfg.Tracing)
	}
	c.gen.LogTo(queue(c.access))
	done := make(chan struct{})
	s.proc.Switch(c.gen, func() { close(done) })
	<-done

	s.cfg = c.cfg
	old, unused := s.identities, s.access
	s.mu.Lock()
	s.identities, s.access = c.identities, c.access
	s.mu.Unlock()
	closed := c.listen()
	c.follow()
	old.closeBut(c.identities)
	gone := s.announce(c.cfg)
	limitMemory(c.cfg)
	s.engine.SetWriteStall(c.cfg.Timeouts.Write)
	if level, ok := admin.LogLevel(c.cfg.Log.Level); ok && c.cfg.Log.Level != before.Log.Level {
		s.level.Set(level)
	}
	if unused != c.access {
		s.retiring.Go(func() {
			if err := s.closeAccessLog(unused); err != nil {
				s.log.Warn("access log left", "error", err)
			}
		})
	}
	s.retiring.Go(func() { s.retire(gone, closed, c.cfg.Timeouts.Drain) })
}

// listen opens the doors that are new, and returns the listeners that are to be
// closed.
func (c *change) listen() (closed []*listening) {
	s := c.s
	next := make(map[string]*listening, len(c.cfg.Listeners))
	for _, l := range c.opened {
		next[l.name] = l
	}
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if opened := next[l.Name]; opened != nil {
			if err := s.serve(opened, l, c.gen); err != nil { // the process is ending
				s.log.Error("listener not served", "error", err)
			}
			continue
		}
		next[l.Name] = s.listeners[l.Name]
		next[l.Name].follow(l, c.identities)
	}
	for name, l := range s.listeners {
		if next[name] != l {
			closed = append(closed, l)
		}
	}
	s.listeners = next
	return closed
}

// follow leaves the endpoints of services that are gone, and follows those that have
// changed.
func (c *change) follow() {
	s := c.s
	for name, src := range s.sources {
		svc := c.cfg.Services[name]
		switch {
		case svc == nil || c.sources[name] != nil:
			src.stop()
			continue
		case !src.serves(svc):
			var err error
			if src, err = s.replace(src, svc, c.gen.Update); err != nil { // an address that validation has let pass
				s.log.Error("endpoints stay as they are", "service", name, "error", err)
				src = &source{cfg: svc}
			}
		}
		c.sources[name] = src
	}
	s.sources = c.sources
}

// retire ends what a reload has left behind: first the registrations, then, when
// consumers have had time to hear of it, the listeners. Link ports stay open for
// as long as another sidecar may come for an answer that it asked for.
func (s *sidecar) retire(gone []*announcement, closed []*listening, drain time.Duration) {
	s.leave(gone)
	if len(closed) == 0 {
		return
	}
	wait(s.ended, settle)
	ctx, cancel := context.WithTimeout(s.ended, drain)
	defer cancel()
	for _, l := range closed {
		if l.entrance.DrainLast() {
			until(ctx, func() bool { return l.entrance.Links() == 0 && s.streams.Parked() == 0 })
		}
		s.close(l)
		s.log.Info("listener closed", "listener", l.name, "address", l.address)
	}
}

// frozen are the keys in which two configurations differ and which can't change
// while the process runs.
func frozen(old, cfg *config.Config) (keys []string) {
	for _, k := range []struct {
		name     string
		old, new any
	}{
		{"node", old.Node, cfg.Node},
		{"loops", old.Loops, cfg.Loops},
		{"log.format", old.Log.Format, cfg.Log.Format},
		{"admin", old.Admin, cfg.Admin},
		{"registry", old.Registry, cfg.Registry},
		{"limits.connections", old.Limits.Connections, cfg.Limits.Connections},
		{"timeouts.detect", old.Timeouts.Detect, cfg.Timeouts.Detect},
		{"limits.per_source", old.Limits.PerSource, cfg.Limits.PerSource},
	} {
		if !reflect.DeepEqual(k.old, k.new) {
			keys = append(keys, k.name)
		}
	}
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		if was := listenerAt(old, l); was != nil {
			keys = append(keys, frozenListener(i, was, l)...)
		}
	}
	return keys
}

// frozenListener are the keys of the i-th listener that are bound to its open
// socket. At another address they may change.
func frozenListener(i int, old, l *config.Listener) (keys []string) {
	at := fmt.Sprintf("listeners[%d].", i)
	if old.Name != l.Name {
		keys = append(keys, at+"name")
	}
	if old.Protocol != l.Protocol {
		keys = append(keys, at+"protocol")
	}
	if old.Connections != l.Connections {
		keys = append(keys, at+"connections")
	}
	if old.TLS.Enabled() != l.TLS.Enabled() {
		keys = append(keys, at+"tls")
	}
	if old.Transparent != l.Transparent {
		keys = append(keys, at+"transparent")
	}
	return keys
}

// listenerAt is the listener of cfg at the address of l, or nil. Port 0 is another
// address for each name.
func listenerAt(cfg *config.Config, l *config.Listener) *config.Listener {
	for i := range cfg.Listeners {
		old := &cfg.Listeners[i]
		if old.Address == l.Address && (old.Name == l.Name || !strings.HasSuffix(l.Address, ":0")) {
			return old
		}
	}
	return nil
}

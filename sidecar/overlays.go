package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
)

const (
	// storeTimeout bounds a request to etcd for an overlay.
	storeTimeout = 3 * time.Second
	// judgeTimeout bounds the requests for all statuses of a fleet, some hundred pages of a large one.
	judgeTimeout = 10 * storeTimeout

	// firstTimeout bounds how long a start waits for etcd before it takes the revision on disk.
	firstTimeout = time.Second

	// overlayRetry is the time until a revision is tried again that could not be read, or came at the wrong moment.
	overlayRetry = time.Second
)

// overlays makes the sidecar run the revision of the overlay that the head in etcd names for it. A revision that is
// refused, or can't be read, changes nothing, and neither does a head that is missing: the revision in use stays. It is
// also on disk, for a start without etcd.
type overlays struct {
	log     *slog.Logger
	cfg     *config.Config // of the start; node, registry and config don't change
	version string
	serving func() bool // reports whether the sidecar serves, and does not drain
	ended   context.Context

	use    func(fleet.Revision) *refusal // applies a revision
	refuse func(revision int64, why *refusal)
	sums   func(context.Context) (map[string]*stats.ServiceStats, error)
	counts counted // of the status; run owns it

	tried  map[string]string // the errors of steps that are being retried, as the log has them; run owns it
	kept   fleet.Revision    // what this process has written to disk last; run owns it
	onDisk bool              // kept was written; run owns it

	keys fleetKeys     // nil if there are no overlays
	wake chan struct{} // has a token when head or file has changed

	mu      sync.Mutex
	head    *fleet.Head // nil as long as etcd has none
	since   time.Time   // when the revision came into use
	inUse   int64
	refused *fleet.Refusal // of the revision that head names; nil if it is in use
}

// fleetKeys are the keys of a fleet in etcd. A *store.Store is them.
type fleetKeys interface {
	Follow(notify func(h *fleet.Head, err error)) (stop func())
	Head(ctx context.Context) (h fleet.Head, at int64, err error)
	Change(ctx context.Context, at int64, next *fleet.Head, added *fleet.Revision) error
	Revision(ctx context.Context, n int64) (fleet.Revision, error)
	Report(name string, st *fleet.Status) store.Report
	First(ctx context.Context) (name string, err error)
	Statuses(ctx context.Context, each func(*fleet.Status)) (unread store.Unread, err error)
}

// storeOf returns the keys of the fleet, by the connection of the registry. It returns nil if there are no overlays.
func storeOf(cfg *config.Config, c *connection) *store.Store {
	if !cfg.Overlays.Enabled() || c == nil {
		return nil
	}
	return store.New(c.client.(*etcd.Registry), cfg.Overlays.Etcd)
}

// newOverlays returns the overlays of s, which runs a revision already.
func newOverlays(s *Sidecar, inUse int64) *overlays {
	return &overlays{
		log: s.log, cfg: s.cfg, version: s.version, ended: s.ended, since: time.Now(), inUse: inUse,
		use: s.reloads.useRevision, refuse: s.reloads.refuse,
		sums:    func(ctx context.Context) (map[string]*stats.ServiceStats, error) { return s.admin.Sums(ctx) },
		serving: func() bool { return s.admin.Phase() == admin.Serving }, wake: make(chan struct{}, 1),
	}
}

// changed makes run look at head and file again.
func (o *overlays) changed() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run follows the head and says in etcd which revision runs, until the sidecar drains or ends.
func (o *overlays) run() {
	defer o.keys.Follow(o.onHead)()
	next := time.Now().Add(o.look())
	report := o.keys.Report(o.name(), o.status())
	defer func() { _ = bounded(report.Close) }() // otherwise the lease expires
	tick := time.NewTicker(overlayRetry)
	defer tick.Stop()
	again := false
	for o.serving() {
		select {
		case <-o.ended.Done():
			return
		case <-o.wake:
			again = o.pursue()
			next = time.Now()
		case <-tick.C:
			if again {
				again = o.pursue()
				next = time.Now()
			}
		}
		if now := time.Now(); !now.Before(next) {
			next = now.Add(o.look())
			report.Set(o.status())
			o.guard()
		}
	}
}

// onHead notes a head.
func (o *overlays) onHead(h *fleet.Head, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil:
		o.log.Error("head of the overlays not read; the revision in use stays", "revision", o.inUse, "error", err)
	case h == nil && o.inUse == 0: // nobody has set one
	case h == nil:
		o.log.Warn("etcd has no head of the overlays; the revision in use stays", "revision", o.inUse, "prefix", o.cfg.Overlays.Etcd)
	default:
		o.head = h
		o.changed()
	}
}

// wanted returns the revision that this sidecar should run. ok is false as long as that is unknown.
func (o *overlays) wanted() (revision int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.head == nil {
		return 0, false
	}
	return o.head.RevisionOf(o.cfg.Node.ID, o.cfg.Node.Labels), true
}

// pursue applies the revision that this sidecar should run, and reports whether another try may help.
func (o *overlays) pursue() (again bool) {
	want, known := o.wanted()
	if !known {
		return false
	}
	next, err := readRevision(o.ended, o.keys, want)
	switch {
	case errors.Is(err, store.ErrUnusable):
		why := &refusal{refusedRevision, err}
		o.refuse(want, why)
		o.settle(want, why)
		return false
	case err != nil:
		o.tell("revision of the overlay not read, will retry", err)
		return true
	}
	o.tell("revision of the overlay not read, will retry", nil)
	why := o.use(next)
	if why != nil && why.code == refusedDraining { // a successor may fail
		return true
	}
	if o.settle(want, why); why == nil {
		o.keep(next)
	}
	return false
}

// tell logs why a step is retried, unless the log has that already. No error means that the step has succeeded. Of errors of
// etcd the codes are compared: their texts may have ports.
func (o *overlays) tell(what string, err error) {
	if err == nil {
		delete(o.tried, what)
		return
	}
	reason := err.Error()
	var failed *etcd.RequestError
	if errors.As(err, &failed) {
		reason = failed.Code
	}
	if o.tried[what] == reason {
		return
	}
	if o.tried == nil {
		o.tried = make(map[string]string)
	}
	o.tried[what] = reason
	o.log.Warn(what, "error", err)
}

// readRevision reads a revision from etcd. Revision 0 is that without an overlay.
func readRevision(ctx context.Context, from fleetKeys, n int64) (fleet.Revision, error) {
	if n == 0 {
		return fleet.Revision{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return from.Revision(ctx, n)
}

// settle notes whether a revision is in use.
func (o *overlays) settle(revision int64, why *refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if why != nil {
		o.refused = fleet.RefusalOf(revision, why.code, why.reason)
		return
	}
	if o.refused = nil; o.inUse != revision {
		o.inUse, o.since = revision, time.Now()
	}
}

// keep writes the revision in use to disk, if there is a directory for it, and the revision is not there already.
func (o *overlays) keep(r fleet.Revision) {
	dir := o.cfg.Registry.CacheDir
	if dir == "" || o.onDisk && o.kept.Same(&r) {
		return
	}
	kept := keptOverlay{Prefix: o.cfg.Overlays.Etcd, Revision: r}
	err := kept.keep(dir)
	if o.kept, o.onDisk = r, err == nil; err != nil {
		o.log.Warn("revision not kept on disk: a start without etcd would use an older one", "revision", r.Number, "directory", dir, "error", err)
	}
}

// stats returns the revision for the admin API.
func (o *overlays) stats() admin.OverlayStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := admin.OverlayStats{Revision: o.inUse, Since: o.since}
	if r := o.refused; r != nil {
		st.Refused, st.Code, st.Reason = r.Revision, r.Code, r.String()
	}
	return st
}

// firstRevision lays the overlay on the configuration of a start: the revision that etcd names if it responds in time,
// otherwise the one on disk. It returns the revision in use.
func (o *Options) firstRevision() fleet.Revision {
	if !o.Config.Overlays.Enabled() || o.File == nil {
		return fleet.Revision{}
	}
	asked, unknown := o.askRevision()
	return chooseRevision(asked, unknown, o.Config, o.lay, o.Log)
}

// chooseRevision returns the revision that a start runs: the one that etcd names, unless that is unknown or lay refuses
// it; otherwise the one on disk, or none.
func chooseRevision(asked fleet.Revision, unknown error, cfg *config.Config, lay func(fleet.Revision) bool, log *slog.Logger) fleet.Revision {
	if unknown == nil && lay(asked) {
		return asked
	}
	r, err := loadKept(cfg.Registry.CacheDir, cfg.Overlays.Etcd)
	if err != nil {
		log.Warn("revision of the overlay on disk not used", "error", err)
	}
	if err != nil || !lay(r) {
		r = fleet.Revision{}
	}
	if r.Number > 0 || !errors.Is(unknown, errNoHead) {
		log.Warn("etcd names no revision of the overlay that can be used; this start takes the one on disk, or none",
			"revision", r.Number, "error", unknown)
	}
	return r
}

// errNoHead means that no overlay was ever set, or that etcd has lost it.
var errNoHead = errors.New("there is no head of the overlays")

// askRevision asks etcd for the revision, on a connection of its own: the sidecar has none yet.
func (o *Options) askRevision() (r fleet.Revision, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	from, closeStore, err := OpenStore(o.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return r, err
	}
	defer closeStore()
	head, at, err := from.Head(ctx)
	if err != nil {
		return r, err
	}
	if at == 0 {
		return r, errNoHead
	}
	return readRevision(ctx, from, head.RevisionOf(o.Config.Node.ID, o.Config.Node.Labels))
}

// OpenStore returns the keys of the fleet that a configuration names, on a connection of its own. It does not wait for
// etcd. The caller must call closeStore.
func OpenStore(cfg *config.Config, log *slog.Logger) (s *store.Store, closeStore func(), err error) {
	own := config.Default() // without other certificates, and without the cache of the registry
	own.Registry, own.Overlays = cfg.Registry, cfg.Overlays
	own.Registry.CacheDir = ""
	ids, err := openIdentities(own, nil, log, func() {})
	if err != nil {
		return nil, nil, err
	}
	c, err := connectEtcd(own, ids[config.TLSName("registry", config.DiscoverEtcd)], dns.Options{Logger: log})
	if err != nil {
		ids.closeExcept(nil)
		return nil, nil, err
	}
	return storeOf(own, c), func() {
		_ = c.client.Close() // it has no registrations
		ids.closeExcept(nil)
	}, nil
}

// lay lays a revision on the configuration, and reports whether it is in use.
func (o *Options) lay(r fleet.Revision) bool {
	if r.Number == 0 {
		return true
	}
	cfg, err := config.LoadWith(o.File.path, r.Overlay())
	if err != nil {
		o.Log.Error("revision of the overlay refused", "revision", r.Number, "reason", err)
		return false
	}
	o.Config = cfg
	return true
}

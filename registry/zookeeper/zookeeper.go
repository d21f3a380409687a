// Package zookeeper finds and registers endpoints in ZooKeeper, as Apache Dubbo writes them there. It is one of the sources
// of endpoints: it delivers snapshots to the rest of the sidecar, and knows nothing of their use.
//
// Dubbo has two levels of records, and an application writes both, unless it is told otherwise:
//
//	/dubbo/INTERFACE/providers/URL          the interface level: the name of a node is a percent-encoded URL
//	/dubbo/INTERFACE/configurators/URL      changes of these, such as another weight
//	/services/APPLICATION/ID                the application level: instances, in the JSON of Curator's service discovery
//	/dubbo/mapping/INTERFACE                which applications have an interface
//	/dubbo/metadata/APPLICATION/REVISION    which interfaces an instance has, if its application writes that
//
// Endpoints are those of both levels. A record of the interface level decides about its address. The application level adds
// addresses that have none.
//
// An outage of ZooKeeper never stops traffic. The rules of package kept hold, and one more: after the session was lost,
// endpoints that were in use stay until 30 s after the first record has come back (see hold). While no record comes back, there is no
// limit. After a start, the endpoints of the cache stay for 30 s, or until 30 s after the first record has come back within that time.
//
//	zookeeper.go           Registry, its options and its watches
//	follower.go            the endpoints of a service; hold.go those that stay in use
//	provider.go            records of the interface level; instance.go those of the application level
//	mirror.go              what was read of ZooKeeper, and what is read again; memo.go what was made of it
//	register.go            registrations; record.go what they write
package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/kept"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// Options configures a Registry.
type Options struct {
	Servers []string // "host:port", at least one
	Chroot  string   // path of a node that all others are under, without a "/" at its end; "" means none
	Group   string   // name of Dubbo's node below it; default: dubbo

	// SessionTimeout is how long a registration outlives its process. The server may choose another time. Default: 10 s.
	SessionTimeout time.Duration

	Username, Password string // for the scheme digest; "" means none

	// TLS returns the configuration of the next connection, so that it uses rotated certificates. The name that a server must
	// prove is filled in. nil means plain text.
	TLS func() *tls.Config

	// Service returns what is read and written for a service.
	Service func(name string) Service

	// Registers has, for the protocol of a listener, how consumers of Dubbo call it. Listeners of others can't be registered.
	Registers map[string]Scheme

	CacheDir string // stores the last known endpoints for a start without ZooKeeper; it is made if missing. "" means no cache

	Protocols registry.Protocols // for the cache
	DNS       dns.Options        // how addresses that are host names are resolved
	Logger    *slog.Logger       // nil means no logs
}

// Service is what Dubbo calls a service: an interface, in a group and a version.
type Service struct {
	Interface string

	// Group and Version are those of the records that count: one, several with commas between them, or "*" for all. "" means
	// records without one.
	Group, Version string

	// Applications are those whose instances have the interface. None means that ZooKeeper's mapping says so.
	Applications []string

	Scheme   string // of the URLs that count, and the protocol of instances, as Dubbo names it
	Protocol string // of the endpoints that have it
}

// Scheme is what the URL of a provider says about its protocol.
type Scheme struct {
	Name          string // as Dubbo names the protocol
	Serialization string // that consumers must use; "" means any
}

// grace is how long endpoints stay in use after a lost session, once the first record has come back, and after a start.
const grace = 30 * time.Second

// requestTimeout bounds a request to ZooKeeper.
const requestTimeout = 10 * time.Second

// Registry is the client of one ZooKeeper, a registry.Watcher and a registry.Registrar.
type Registry struct {
	opt      Options
	log      *slog.Logger
	root     string // of Dubbo's nodes
	grace    time.Duration
	kept     kept.Options
	resolved *dns.Watcher
	session  *session.Session
	mirror   mirror
	contact  *registry.Contact
	tally    registry.Tally
	outage   outage
	tasks    *tasks.Group

	handles handles
}

var (
	_ registry.Watcher   = (*Registry)(nil)
	_ registry.Registrar = (*Registry)(nil)
)

// ErrClosed means that the Registry was closed.
var ErrClosed = errors.New("registry/zookeeper: closed")

// New returns at once, whether ZooKeeper answers or not. Its errors concern the cache directory. The caller must close the
// Registry.
func New(opt Options) (*Registry, error) { return newRegistry(opt, grace) }

func newRegistry(opt Options, grace time.Duration) (*Registry, error) {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.DNS.Logger = cmp.Or(opt.DNS.Logger, opt.Logger)
	opt.SessionTimeout = cmp.Or(opt.SessionTimeout, 10*time.Second)
	r := &Registry{opt: opt, log: opt.Logger, root: opt.Chroot + "/" + cmp.Or(opt.Group, "dubbo"), grace: grace, contact: registry.NewContact(), outage: outage{log: opt.Logger}}
	r.kept.Tally = &r.tally
	r.kept.Origin = "zookeeper " + strings.Join(slices.Sorted(slices.Values(opt.Servers)), ",") + r.root
	if opt.CacheDir != "" {
		var err error
		if r.kept.Cache, err = registry.OpenCache(opt.CacheDir, opt.Protocols, opt.Logger); err != nil {
			return nil, err
		}
	}
	r.tasks = tasks.New()
	r.handles.init()
	r.mirror.init(r.tasks, func(ctx context.Context, k key) (value, error) { return readKey(ctx, r.session, k) })
	r.resolved = dns.New(unresolved{r}, opt.DNS)
	so := session.Options{
		Servers: opt.Servers, Timeout: opt.SessionTimeout, Username: opt.Username, Password: opt.Password, Handler: handler{r},
	}
	if opt.TLS != nil {
		so.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return dialTLS(ctx, addr, opt.TLS()) }
	}
	r.session = session.New(so)
	r.session.Start()
	r.tasks.Go(r.run)
	return r, nil
}

// dialTLS opens a connection whose server proves the name in addr, unless cfg has another.
func dialTLS(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
}

// run looks at services whose keys have changed.
func (r *Registry) run() {
	for {
		select {
		case <-r.tasks.Context().Done():
			return
		case <-r.mirror.wake:
		}
		for _, f := range r.mirror.takeDirty() {
			f.look(&r.mirror)
		}
	}
}

// Watch implements registry.Watcher. The first snapshot comes once the records of the service were read, or from the cache.
func (r *Registry) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	return r.resolved.Watch(service, notify)
}

// Known returns what the running watches know of host names.
func (r *Registry) Known() dns.Known { return r.resolved.Known() }

// Condition returns whether ZooKeeper responds and lets all nodes be read, and what the watches have found.
func (r *Registry) Condition() registry.Condition {
	now := r.contact.Condition()
	if since, err := r.mirror.failure(); now.Up && err != nil {
		now = registry.Condition{Since: since, Code: codeOf(err), Err: err}
	}
	r.tally.Add(&now)
	return now
}

// codeOf returns the code of an error of a session, or of a node.
func codeOf(err error) string {
	switch {
	case errors.Is(err, session.NoAuth), errors.Is(err, session.AuthFailed), errors.Is(err, session.NoLogin):
		return registry.CodeDenied
	case errors.Is(err, session.ErrLost), errors.Is(err, session.ErrSilent), errors.Is(err, session.ErrRefused):
		return registry.CodeUnreachable
	case errors.Is(err, session.ErrLarge), errors.Is(err, session.ErrFormat), errors.Is(err, errChildren), errors.Is(err, errData):
		return registry.CodeInvalid
	}
	return registry.CodeOf(err, registry.CodeFailed)
}

// Close ends all watches, and the session with its registrations. It must not be called from a notify function.
func (r *Registry) Close() error {
	err := r.resolved.Close()
	r.tasks.Close()
	r.session.Close()
	r.kept.Cache.Close()
	return err
}

// unresolved is the Registry as a watcher of addresses that may have host names.
type unresolved struct{ r *Registry }

func (u unresolved) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	r := u.r
	of := r.serviceOf(service)
	o := r.kept
	o.Origin += " " + of.Interface + ":" + of.Group + ":" + of.Version + " " + of.Scheme
	f := &follower{
		r: r, service: service, of: of, list: o.Watch(service, notify), limit: registry.Limit{Most: registry.MaxListed},
		used: make(map[*entry]struct{}), missing: make(map[*entry]struct{}),
	}
	r.mirror.markDirty(f)
	return func() {
		f.list.Close()
		f.stop(&r.mirror)
	}
}

// serviceOf returns what is read and written for a service.
func (r *Registry) serviceOf(name string) (of Service) {
	of = r.opt.Service(name)
	of.Interface = cmp.Or(of.Interface, name)
	return of
}

// servicesRoot is the node of applications, as Dubbo names it whatever its group is.
func servicesRoot(chroot string) string { return chroot + "/services" }

// handler hands on what happens to the session.
type handler struct{ r *Registry }

// Connected implements session.Handler.
func (h handler) Connected(id int64, isNew bool) {
	h.r.contact.Succeed()
	h.r.outage.end()
	h.r.mirror.connect(isNew)
	h.r.handles.connect(id)
}

// Lost implements session.Handler.
func (h handler) Lost(err error) {
	h.r.outage.add(err, h.r.contact.Fail(codeOf(err), err))
	h.r.mirror.lose()
	h.r.handles.lose()
}

// Changed implements session.Handler.
func (h handler) Changed(path string) {
	h.r.mirror.changed(path)
	h.r.handles.changed(path)
}

// outage is what the log says of the failures since a server answered last. Its methods are called one at a time.
type outage struct {
	log   *slog.Logger
	first error // the only failure, which is not logged: a server may restart, and another one take over
	isOn  bool
}

// add adds a failure. isNews reports whether it is the first one with its code.
func (o *outage) add(err error, isNews bool) {
	if !o.isOn {
		o.isOn, o.first = true, err
		return
	}
	switch {
	case o.first != nil && isNews:
		o.warn(o.first)
		o.warn(err)
	case o.first != nil || isNews:
		o.warn(err)
	}
	o.first = nil
}

func (o *outage) warn(err error) {
	o.log.Warn("ZooKeeper does not respond; the last known endpoints stay in use", "code", codeOf(err), "error", err)
}

func (o *outage) end() {
	if o.isOn && o.first == nil {
		o.log.Info("ZooKeeper responds again")
	}
	o.isOn, o.first = false, nil
}

// Package kubernetes finds endpoints in the EndpointSlices of Services. It is one of the sources of endpoints: it delivers
// snapshots to the rest of the sidecar, and knows nothing of their use.
//
// The EndpointSlices of each namespace are listed page by page, and then watched by one request from the version of the list
// (https://kubernetes.io/docs/reference/using-api/api-concepts/). Bookmarks keep the version fresh. A version that the
// API server has forgotten (410 Gone) leads to another list. The last endpoints stay meanwhile, as package kept says.
//
// Why there is a client here and no client-go: docs/decisions/0015-kubernetes-client.md.
//
// The account of the sidecar needs list and watch of endpointslices in the namespace, and nothing else.
//
//	kubernetes.go  Registry, its options and its watches
//	access.go      how the API server is reached
//	follower.go    lists and watches of a namespace
//	slices.go      which endpoints a Service has
package kubernetes

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/kept"
)

// Options configures a Registry.
type Options struct {
	Kubeconfig string // path of a kubeconfig file; "" means the service account of the pod
	Namespace  string // of Services that name none; "" means that of the account or context

	// Services has what differs between the name of a service in the configuration and that of its Service.
	Services map[string]Service

	Zone string // of this sidecar, for topology hints; "" means that hints are ignored

	// CacheDir stores the last known endpoints for a start without the API server; it is made if missing. "" means no cache.
	CacheDir string

	Protocols registry.Protocols // for the cache
	DNS       dns.Options        // how addresses that are host names are resolved
	Logger    *slog.Logger       // nil means no logs

	requestTimeout time.Duration // of one page, and until a watch begins
	silence        time.Duration // after which a watch is not trusted any more
	maxMessage     int           // bytes of a page, and of an event
}

// Service is a Service of Kubernetes.
type Service struct {
	Name      string // "" means the name in the configuration
	Namespace string // "" means Options.Namespace
	Port      string // name or number; "" means the only one
}

// Registry is the client of one cluster, a registry.Watcher.
type Registry struct {
	opt      Options
	made     time.Time
	log      *slog.Logger
	access   *access
	http     *http.Client
	hangUp   context.CancelFunc // closes all connections
	kept     kept.Options
	resolved *dns.Watcher
	tally    registry.Tally

	tasks     *tasks.Group
	mu        sync.Mutex           // guards followers
	followers map[string]*follower // by namespace; each goes on until Close, also without users
}

var _ registry.Watcher = (*Registry)(nil)

// New returns at once, whether the API server responds or not. Its errors concern the access and the cache directory. The
// caller must close the Registry.
func New(opt Options) (*Registry, error) {
	var a *access
	var err error
	if opt.Kubeconfig != "" {
		a, err = fromKubeconfig(opt.Kubeconfig)
	} else {
		a, err = inCluster(accountDir)
	}
	if err != nil {
		return nil, err
	}
	return newRegistry(opt, a)
}

func newRegistry(opt Options, a *access) (*Registry, error) {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.DNS.Logger = cmp.Or(opt.DNS.Logger, opt.Logger)
	opt.Namespace = cmp.Or(opt.Namespace, a.namespace)
	opt.requestTimeout, opt.silence = cmp.Or(opt.requestTimeout, requestTimeout), cmp.Or(opt.silence, watchSilence)
	opt.maxMessage = cmp.Or(opt.maxMessage, maxMessage)
	r := &Registry{opt: opt, made: time.Now(), log: opt.Logger, access: a, followers: make(map[string]*follower)}
	life, hangUp := context.WithCancel(context.Background())
	r.http, r.hangUp = a.client(life, opt.requestTimeout), hangUp
	r.kept = kept.Options{Origin: "kubernetes " + a.server.String(), Tally: &r.tally}
	if opt.CacheDir != "" {
		var err error
		if r.kept.Cache, err = registry.OpenCache(opt.CacheDir, opt.Protocols, opt.Logger); err != nil {
			return nil, err
		}
	}
	r.resolved = dns.New(unresolved{r}, opt.DNS)
	r.tasks = tasks.New()
	return r, nil
}

// Watch implements registry.Watcher. The first snapshot comes with the first list of the namespace, or from the cache.
func (r *Registry) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	return r.resolved.Watch(service, notify)
}

// Known returns what the running watches know of host names.
func (r *Registry) Known() dns.Known { return r.resolved.Known() }

// Condition returns whether the API server responds for each namespace, and what the watches have found.
func (r *Registry) Condition() registry.Condition {
	var parts []registry.Condition
	r.mu.Lock()
	for _, namespace := range slices.Sorted(maps.Keys(r.followers)) {
		parts = append(parts, r.followers[namespace].condition())
	}
	r.mu.Unlock()
	all := registry.Join(r.made, parts...)
	r.tally.Add(&all)
	return all
}

// Close ends all watches. It must not be called from a notify function.
func (r *Registry) Close() error {
	err := r.resolved.Close()
	r.tasks.Close()
	r.hangUp() // a stream of HTTP/2 may outlive its request for a moment, so the connection is not idle yet
	r.kept.Cache.Close()
	return err
}

// unresolved is the Registry as a watcher of addresses that may have host names.
type unresolved struct{ r *Registry }

func (u unresolved) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	r := u.r
	of := r.opt.Services[service]
	name, namespace := cmp.Or(of.Name, service), cmp.Or(of.Namespace, r.opt.Namespace)
	l := r.kept.Watch(service, notify)
	f := r.follower(namespace)
	f.add(&user{list: l, service: name, port: of.Port, limit: registry.Limit{Most: registry.MaxListed}})
	return func() {
		l.Close()
		f.remove(l)
	}
}

// follower returns the follower of a namespace, which is started if there is none.
func (r *Registry) follower(namespace string) *follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followers[namespace]
	if f == nil {
		f = &follower{r: r, namespace: namespace, contact: registry.NewContact(), pageSize: pageSize, users: make(map[*kept.List]*user)}
		r.followers[namespace] = f
		r.tasks.Go(f.run)
	}
	return f
}

// Pauses between tries.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Package etcd discovers and registers endpoints in etcd. It is one of the registries: it
// delivers snapshots to the rest of the sidecar, and knows nothing of their use.
//
// A registration is the key <prefix>/<service>/<node>@<address> with a value in the JSON of
// etcd's own naming/endpoints, under a lease that its process keeps alive. A watch lists a
// service's keys and follows their changes. All watches share a goroutine, and a gRPC stream.
//
// An outage of etcd never stops traffic. The rules:
//
//   - While etcd does not respond, the last snapshot stays, without a time limit.
//   - At a start without etcd, the snapshot comes from the cache on disk.
//   - When etcd comes back without its data, endpoints that have not registered again are
//     kept for LeaseTTL + Grace, and until any node has registered. The signs of lost data
//     are another cluster id, a lower revision or raft term, or keys of a service that
//     did not exist at a revision that was seen.
//   - When a service's last endpoint goes, it is kept for Grace: an etcd that was frozen
//     ends all leases at once, and their owners register again within a moment.
//
// An endpoint that is kept although it is gone costs a refused connection and a retry. An
// empty snapshot would cost every request.
//
//	etcd.go      Registry, its options and its connection
//	register.go  registrations; lease.go keeps their leases alive
//	service.go   the endpoints of a service; view.go decides which to use, room.go when to list too many keys again
//	keys.go      other keys that a caller follows, or keeps under a lease
//	watch.go     a watch, which lists keys and follows their changes
//	watches.go   all watches, on one goroutine; feed.go the streams by which etcd sends changes
//	position.go  whether etcd has lost data
//	value.go     the value of a key
//	retry.go     the pauses between tries; reason.go why they are needed
//	tls.go       certificates that change
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// Options configures a Registry.
type Options struct {
	Endpoints []string // etcd servers, "host:port" or URLs; at least one
	Prefix    string   // of all keys, without a "/" at its end; default: /remora/services

	// LeaseTTL is how long a registration outlives its process, at least one second, rounded
	// up to whole seconds. Default: 10 s.
	LeaseTTL time.Duration

	// Grace is how long a service keeps its last endpoint, and the time beyond LeaseTTL for
	// which endpoints are kept after etcd lost its data. It should exceed three seconds, the
	// time in which a provider notices that etcd is back. Default: 5 s.
	Grace time.Duration

	Username, Password string

	// TLS returns the configuration of the next connection to etcd, so that it uses rotated
	// certificates. The name that an endpoint must prove is filled in. nil means plain text.
	TLS func() *tls.Config

	// CacheDir stores the last known endpoints for a start without etcd; it is made if
	// missing. "" means no cache.
	CacheDir string

	Protocols registry.Protocols // a value with another protocol is invalid
	DNS       dns.Options        // how addresses that are host names are resolved
	Logger    *slog.Logger       // nil means no logs
}

const (
	defaultPrefix  = "/remora/services"
	defaultTTL     = 10 * time.Second
	defaultGrace   = 5 * time.Second
	requestTimeout = 3 * time.Second // of each request to etcd; failed requests are retried
	coldWait       = time.Second     // how long a start waits for etcd before it uses the cache

	// keepAliveTime is the shortest that gRPC allows. The probe (position.go) sends more
	// often, and its packets must be acknowledged within keepAliveTimeout, which gRPC also
	// uses as the TCP user timeout. So a dead connection is noticed within seconds.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// ErrClosed is the error of registrations that ended because their Registry was closed.
var ErrClosed = errors.New("registry/etcd: closed")

// Registry is one process's connection to etcd, a registry.Watcher and a registry.Registrar.
type Registry struct {
	opt    Options
	ttl    int64 // LeaseTTL in seconds
	log    *slog.Logger
	cache  *registry.Cache
	origin string // of cache records

	tasks   *tasks.Group
	closing sync.Once

	ready  chan struct{} // closed when client is set
	client *clientv3.Client

	resolved *dns.Watcher // for the Registry's own watches
	position tracker
	contact  *registry.Contact
	tally    registry.Tally
	stats    counters
	reason   reason
	breaks   breaks

	watches *watches
}

var (
	_ registry.Watcher   = (*Registry)(nil)
	_ registry.Registrar = (*Registry)(nil)
)

// New returns at once, whether etcd responds or not. Its errors concern opt and the cache
// directory. The caller must close the Registry.
func New(opt Options) (*Registry, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	r := &Registry{
		opt:    opt,
		ttl:    int64((opt.LeaseTTL + time.Second - 1) / time.Second),
		log:    opt.Logger,
		origin: opt.origin(),
		ready:  make(chan struct{}), contact: registry.NewContact(),
	}
	if opt.CacheDir != "" {
		var err error
		if r.cache, err = registry.OpenCache(opt.CacheDir, opt.Protocols, opt.Logger); err != nil {
			return nil, err
		}
	}
	r.position.init()
	r.tasks = tasks.New()
	r.watches = newWatches(r)
	r.resolved = dns.New(keys{r}, opt.DNS)
	r.tasks.Go(r.connect)
	return r, nil
}

func (o *Options) complete() error {
	if len(o.Endpoints) == 0 || slices.Contains(o.Endpoints, "") {
		return errors.New("registry/etcd: no endpoints, or an empty one")
	}
	o.Prefix = strings.TrimRight(cmp.Or(o.Prefix, defaultPrefix), "/")
	o.LeaseTTL, o.Grace = cmp.Or(o.LeaseTTL, defaultTTL), cmp.Or(o.Grace, defaultGrace)
	if o.LeaseTTL < time.Second {
		return errors.New("registry/etcd: lease_ttl is less than a second")
	}
	if o.Grace < 0 {
		return errors.New("registry/etcd: grace is negative")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.DNS.Logger = cmp.Or(o.DNS.Logger, o.Logger)
	return nil
}

// origin distinguishes the caches of different registries, so that a sidecar that is moved to
// another etcd does not send traffic to endpoints of the former one.
func (o *Options) origin() string {
	sorted := slices.Sorted(slices.Values(o.Endpoints))
	return strings.Join(sorted, ",") + " " + o.Prefix
}

// connect makes the client and then runs the probe. With a user name, making the client
// requests a token, so it can fail and block like any request.
func (r *Registry) connect() {
	var pause retry
	for {
		c, err := clientv3.New(r.clientConfig())
		if err == nil {
			r.client = c
			close(r.ready)
			r.probe()
			return
		}
		r.fail(err)
		if !pause.wait(r.tasks.Context()) {
			return
		}
	}
}

func (r *Registry) clientConfig() clientv3.Config {
	c := clientv3.Config{
		Endpoints:            r.opt.Endpoints,
		Context:              r.tasks.Context(),
		DialTimeout:          requestTimeout, // bounds the first token request only
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Username:             r.opt.Username,
		Password:             r.opt.Password,
		// Relevant events are logged here, once per change and not per attempt.
		Logger: zap.NewNop(),
		// A proxy that the environment names is for applications, and may be this sidecar.
		DialOptions: []grpc.DialOption{grpc.WithNoProxy(), grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's default limit of two minutes would outlast any lease.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: requestTimeout,
		}), grpc.WithChainUnaryInterceptor(r.reason.observe), grpc.WithStatsHandler(&r.breaks)},
	}
	if r.opt.TLS != nil { // the dial option takes precedence over what the client makes of an endpoint's scheme
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(rotate(r.opt.TLS)))
	}
	return c
}

func (r *Registry) await(ctx context.Context) (*clientv3.Client, error) {
	select {
	case <-r.ready:
		return r.client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isReady reports whether the client is made.
func (r *Registry) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// Close ends all watches and abandons the registrations that were not closed, which end with
// their leases. It closes the connection and waits for the end of all that. It must not be
// called from a notify function.
func (r *Registry) Close() error {
	r.closing.Do(func() {
		r.resolved.Close()
		r.tasks.Close()
		if r.isReady() {
			_ = r.client.Close() // the only error is that of the context cancelled above
		}
		r.cache.Close()
	})
	return nil
}

// Stats are the counters of a Registry, which only grow.
type Stats struct {
	Connected  bool   // the last probe succeeded
	LastError  string // of the last probe, or ""
	Lists      uint64 // times a service's keys were listed
	DataLosses uint64 // times that etcd came back without its data
}

// Stats returns the counters of r.
func (r *Registry) Stats() Stats {
	now := r.contact.Condition()
	s := Stats{Connected: now.Up, Lists: r.stats.lists.Load(), DataLosses: r.stats.losses.Load()}
	if now.Err != nil {
		s.LastError = now.Err.Error()
	}
	return s
}

type counters struct{ lists, losses, answers atomic.Uint64 }

// Condition returns whether etcd responds, and what the watches have found.
func (r *Registry) Condition() registry.Condition {
	now := r.contact.Condition()
	r.tally.Add(&now)
	return now
}

// fail notes that etcd does not respond as it should, and logs a change.
func (r *Registry) fail(err error) {
	err = r.reason.explain(err)
	if code := codeOf(err); r.contact.Fail(code, err) {
		r.log.Warn("etcd does not respond; the last known endpoints stay in use", "code", code, "error", err)
	}
}

// succeed notes a response, and logs a change.
func (r *Registry) succeed() {
	r.stats.answers.Add(1)
	if !r.contact.Succeed().Up {
		r.log.Info("etcd responds")
	}
}

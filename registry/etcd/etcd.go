// Package etcd discovers and registers endpoints in etcd.
//
// A registration is the key <prefix>/<service>/<node>@<address> with a value in
// the JSON of etcd's own naming/endpoints, under a lease that its process keeps
// alive. A watch lists a service's keys and follows their changes.
//
// etcd being away never stops traffic. The rules:
//
//   - While etcd does not answer, the last snapshot stays, for however long.
//   - At a start without etcd, the snapshot comes from the cache on disk.
//   - When etcd comes back without its data (its cluster id changed, its revision
//     or raft term went backwards, or a service's keys are not those that were
//     there at a revision it has passed), endpoints that have not registered
//     anew are kept for LeaseTTL + Grace, and until somebody has registered.
//   - When a service's last endpoint goes, it is kept for Grace: an etcd that
//     froze and wakes up ends all leases at once, and their owners come back
//     within a moment.
//
// An endpoint that is kept but gone costs a refused connection and a retry
// elsewhere; an empty snapshot would cost every request.
package etcd

import (
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

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// Options configures a Registry.
type Options struct {
	// Endpoints are the etcd servers, "host:port" or URLs; at least one.
	Endpoints []string

	// Prefix is what all keys begin with, without a "/" at its end.
	// Default: /remora/services.
	Prefix string

	// LeaseTTL is how long a registration outlives its process, at least one
	// second, rounded up to whole seconds. Default: 10 s.
	LeaseTTL time.Duration

	// Grace is how long a service that lost its last endpoint keeps it, and the
	// time beyond LeaseTTL for which endpoints are kept after etcd lost its
	// data. It should exceed the three seconds that a provider may take to
	// notice that etcd is back. Default: 5 s.
	Grace time.Duration

	Username, Password string

	// TLS is asked for the configuration of each connection to etcd, so that
	// rotated certificates serve the next one; the name that an endpoint must
	// prove is filled in. nil: plain text.
	TLS func() *tls.Config

	// CacheDir is where the last known endpoints are kept for a start without
	// etcd; it is made if missing. "": not kept.
	CacheDir string

	// DNS is how addresses that are host names are resolved.
	DNS dns.Options

	Logger *slog.Logger // nil: silent
}

const (
	defaultPrefix = "/remora/services"
	defaultTTL    = 10 * time.Second
	defaultGrace  = 5 * time.Second

	// requestTimeout bounds each request to etcd; what fails is tried again.
	requestTimeout = 3 * time.Second

	// coldWait is how long a start waits for etcd before it takes the cache.
	coldWait = time.Second

	// maxLists bounds the lists that are asked for at a time: while etcd does not
	// answer, the client tries each again many times a second.
	maxLists = 32

	// keepAliveTime is the shortest that gRPC allows. The probe (position.go)
	// sends more often, and what it sends must be acknowledged within
	// keepAliveTimeout, which gRPC also makes the TCP user timeout: a dead
	// connection is noticed within seconds.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// ErrClosed is the error of registrations that the closing of their Registry
// ended.
var ErrClosed = errors.New("registry/etcd: closed")

// Registry is one process's connection to etcd. It is a registry.Watcher and a
// registry.Registrar.
type Registry struct {
	opt    Options
	ttl    int64 // LeaseTTL in seconds
	log    *slog.Logger
	cache  *registry.Cache
	origin string // of cache records

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	once   sync.Once // closing

	ready  chan struct{} // closed when client is set
	client *clientv3.Client

	resolved *dns.Watcher // of the Registry's own watches
	position tracker
	stats    counters
	reason   reason

	services streams       // of the watches of services
	own      streams       // of those of this process's own keys
	lists    chan struct{} // room for requests that list a service

	mu     sync.Mutex // guards closed against tasks.Add
	closed bool
}

var (
	_ registry.Watcher   = (*Registry)(nil)
	_ registry.Registrar = (*Registry)(nil)
)

// New returns at once, whether etcd answers or not; errors are those of opt and
// of its cache directory. The Registry must be closed.
func New(opt Options) (*Registry, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	r := &Registry{
		opt:    opt,
		ttl:    int64((opt.LeaseTTL + time.Second - 1) / time.Second),
		log:    opt.Logger,
		origin: opt.origin(),
		ready:  make(chan struct{}),
		lists:  make(chan struct{}, maxLists),
	}
	r.services.kind, r.own.kind, r.own.resumed = "services", "own", true
	if opt.CacheDir != "" {
		var err error
		if r.cache, err = registry.OpenCache(opt.CacheDir, opt.Logger); err != nil {
			return nil, err
		}
	}
	r.position.init()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.resolved = dns.New(keys{r}, opt.DNS)
	r.spawn(r.connect)
	return r, nil
}

func (o *Options) complete() error {
	if len(o.Endpoints) == 0 || slices.Contains(o.Endpoints, "") {
		return errors.New("registry/etcd: no endpoints, or an empty one")
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	o.Prefix = strings.TrimRight(o.Prefix, "/")
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultTTL
	}
	if o.LeaseTTL < time.Second {
		return errors.New("registry/etcd: lease_ttl is less than a second")
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Grace < 0 {
		return errors.New("registry/etcd: grace is negative")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DNS.Logger == nil {
		o.DNS.Logger = o.Logger
	}
	return nil
}

// origin tells apart caches of different registries, so that a sidecar moved to
// another etcd does not send traffic to the endpoints of the former one.
func (o *Options) origin() string {
	sorted := slices.Sorted(slices.Values(o.Endpoints))
	return strings.Join(sorted, ",") + " " + o.Prefix
}

// spawn runs f unless the Registry is closed; Close waits for it.
func (r *Registry) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Go(f)
	return true
}

// connect makes the client and then watches over etcd's position. With a user
// name the client asks for a token while it is made, so that making it can fail
// and block like any request.
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
		r.stats.fail(r.log, r.reason.explain(err))
		if !pause.wait(r.ctx) {
			return
		}
	}
}

func (r *Registry) clientConfig() clientv3.Config {
	c := clientv3.Config{
		Endpoints:            r.opt.Endpoints,
		Context:              r.ctx,
		DialTimeout:          requestTimeout, // bounds the first token request only
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Username:             r.opt.Username,
		Password:             r.opt.Password,
		// What matters is logged here, once per change and not per attempt.
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own bound of two minutes would outlast any lease.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: requestTimeout,
		}), grpc.WithChainUnaryInterceptor(r.reason.observe), grpc.WithChainStreamInterceptor(once)},
	}
	if r.opt.TLS != nil {
		c.TLS = r.opt.TLS() // makes the client expect TLS; the option has the last word
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(&rotating{current: r.opt.TLS}))
	}
	return c
}

// await returns the client once there is one.
func (r *Registry) await(ctx context.Context) (*clientv3.Client, error) {
	select {
	case <-r.ready:
		return r.client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open begins a watch in etcd, which blocks for as long as etcd is away; the
// channel of its events comes through the channel returned. ctx ends both. It is
// to be called from a task.
func (r *Registry) open(ctx context.Context, key string, opts ...clientv3.OpOption) <-chan clientv3.WatchChan {
	opened := make(chan clientv3.WatchChan, 1)
	r.tasks.Go(func() {
		// A member of etcd that lost touch with the others ends the watch,
		// instead of leaving it in the dark.
		opened <- r.client.Watch(clientv3.WithRequireLeader(ctx), key, opts...)
	})
	return opened
}

// Close ends all watches, abandons registrations that were not closed (they go
// when their lease ends), closes the connection and returns when all of that is
// done. It must not be called from a notify function.
func (r *Registry) Close() error {
	r.once.Do(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.cancel()
		r.resolved.Close()
		r.tasks.Wait()
		select {
		case <-r.ready:
			// The only error is that of the context cancelled above.
			_ = r.client.Close()
		default:
		}
		r.cache.Close()
	})
	return nil
}

// Stats is what a Registry counts; all counters only grow.
type Stats struct {
	Connected  bool   // the last probe was answered
	LastError  string // of the last probe, or ""
	Lists      uint64 // times a service's keys were listed
	DataLosses uint64 // times etcd came back without its data
	BadValues  uint64 // values left out because they made no sense
}

// Stats returns the counters of r.
func (r *Registry) Stats() Stats { return r.stats.snapshot() }

type counters struct {
	lists, losses, bad atomic.Uint64

	mu        sync.Mutex
	connected bool
	lastErr   error
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Connected: c.connected, Lists: c.lists.Load(), DataLosses: c.losses.Load(), BadValues: c.bad.Load()}
	if c.lastErr != nil {
		s.LastError = c.lastErr.Error()
	}
	return s
}

// fail notes that etcd does not answer, and logs it when that is news.
func (c *counters) fail(log *slog.Logger, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected || c.lastErr == nil {
		log.Warn("etcd does not answer; the last known endpoints stay in use", "error", err)
	}
	c.connected, c.lastErr = false, err
}

func (c *counters) succeed(log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		log.Info("etcd answers")
	}
	c.connected, c.lastErr = true, nil
}

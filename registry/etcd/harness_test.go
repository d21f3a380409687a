package etcd_test

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	prefix  = "/test"
	timeout = time.Minute // for any event
)

// startEtcd starts etcd, at an address that is the test's until it ends: others may start there later.
func startEtcd(t *testing.T, opt lab.EtcdOptions) *lab.Etcd {
	t.Helper()
	if opt.ClientAddr == "" {
		addrs, release, err := freeport.Loopback(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		opt.ClientAddr = addrs[0]
	}
	s, err := lab.StartEtcd(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// open returns a Registry whose leases outlive any pause of the machine. change may be
// nil.
func open(t *testing.T, endpoint string, change func(*etcd.Options)) *etcd.Registry {
	t.Helper()
	opt := etcd.Options{Endpoints: []string{endpoint}, Prefix: prefix, LeaseTTL: 10 * time.Minute, Grace: time.Second,
		Protocols: registry.Protocols{"link", "http"}}
	if change != nil {
		change(&opt)
	}
	r, err := etcd.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// brief sets a short lease, for a test that waits for its end.
func brief(o *etcd.Options) { o.LeaseTTL = time.Second }

// renewsSoon sets a lease that is renewed after some seconds, a third of it, and still outlives a
// pause of the machine.
func renewsSoon(o *etcd.Options) { o.LeaseTTL = 12 * time.Second }

// awaitRenewal waits until a lease is renewed, which must not end before.
func awaitRenewal(ctx context.Context, t *testing.T, client *clientv3.Client, lease clientv3.LeaseID) {
	t.Helper()
	lowest := int64(math.MaxInt64)
	eventually.True(t, "the lease to be renewed", func() bool {
		ttl, err := client.TimeToLive(ctx, lease)
		if err != nil || ttl.TTL < 0 {
			t.Fatalf("the lease has ended: %+v, %v", ttl, err)
		}
		lowest = min(lowest, ttl.TTL)
		return ttl.TTL > lowest
	})
}

// raw returns a plain client and a context for its requests.
func raw(t *testing.T, s *lab.Etcd) (context.Context, *clientv3.Client) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(func() { cancel(); c.Close() })
	return ctx, c
}

func at(addr string, weight int) registry.Registration {
	return registry.Registration{Service: "compute", Node: "n", Addr: addr, Weight: weight, Protocol: "link"}
}

func waitState(t *testing.T, h registry.Handle, want registry.State) {
	t.Helper()
	eventually.True(t, "state "+want.String(), func() bool { return h.State() == want })
}

// logCounter counts log records by message.
type logCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (b *logCounter) Enabled(context.Context, slog.Level) bool { return true }
func (b *logCounter) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logCounter) WithGroup(string) slog.Handler            { return b }
func (b *logCounter) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts == nil {
		b.counts = make(map[string]int)
	}
	b.counts[r.Message]++
	return nil
}

func logTo(b *logCounter) func(*etcd.Options) {
	return func(o *etcd.Options) { o.Logger = slog.New(b) }
}

func (b *logCounter) count(message string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[message]
}

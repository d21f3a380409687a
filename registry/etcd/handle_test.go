package etcd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
)

// newTestHandle returns a handle whose goroutine does not run, and its log.
func newTestHandle(t *testing.T) (h *handle, log *bytes.Buffer) {
	log = new(bytes.Buffer)
	r := &Registry{log: slog.New(slog.NewTextHandler(log, nil)), contact: registry.NewContact(), tasks: tasks.New()}
	t.Cleanup(r.tasks.Close)
	return r.newHandle(), log
}

// TestAwaitBreak: what ends the wait of a registered key that was put at revision 5, and which of it is an error.
func TestAwaitBreak(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(h *handle, cancel func(), alive chan struct{}, lost chan struct{}, gone chan int64)
		want   string // of the error; "" means none
	}{
		"another value":     {func(h *handle, _ func(), _, _ chan struct{}, _ chan int64) { h.changed <- struct{}{} }, ""},
		"the end":           {func(_ *handle, cancel func(), _, _ chan struct{}, _ chan int64) { cancel() }, context.Canceled.Error()},
		"no lease any more": {func(_ *handle, _ func(), alive, _ chan struct{}, _ chan int64) { close(alive) }, "lease is not kept alive"},
		"lost data":         {func(_ *handle, _ func(), _, lost chan struct{}, _ chan int64) { close(lost) }, errLost.Error()},
		"a removal":         {func(_ *handle, _ func(), _, _ chan struct{}, gone chan int64) { gone <- 6 }, "key was removed"},
	} {
		synctest.Test(t, func(t *testing.T) { // a wait that ends too early or never fails at once
			h, _ := newTestHandle(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			alive, lost, gone := make(chan struct{}), make(chan struct{}), make(chan int64)
			h.pause.next = maxRetry
			result := make(chan error, 1)
			go func() { result <- h.awaitBreak(ctx, 5, &keptLease{alive: alive}, lost, gone) }()
			gone <- 4 // from before the put
			gone <- 5
			alive <- struct{}{}
			gone <- 0 // the renewal is handled
			c.happen(h, cancel, alive, lost, gone)
			err := <-result
			if err == nil && c.want != "" || err != nil && err.Error() != c.want {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if next := h.pause.next; next != 0 {
				t.Errorf("%s: the lease was renewed, and the last pause is %v", name, next)
			}
		})
	}
}

// TestFailed: the log says once why a key can't be put, until it was put, and the state says it always. What was interrupted says nothing.
func TestFailed(t *testing.T) {
	for service, what := range map[string]string{"compute": "registration failed, will retry", "": "value not put in etcd, will retry"} {
		h, log := newTestHandle(t)
		h.service = service
		op, cancel := context.WithCancel(t.Context())
		one, two := errors.New("one"), errors.New("two")
		for i, step := range []struct {
			err   error // nil is a success
			lines int
		}{{one, 1}, {two, 1}, {nil, 1}, {two, 2}} {
			if step.err == nil {
				h.Settle(op, registry.Registered, nil)
			} else {
				h.failed(op, step.err)
			}
			if h.Err() != step.err || (h.State() == registry.Registered) != (step.err == nil) || strings.Count(log.String(), what) != step.lines {
				t.Errorf("step %d: %v, %v; the log has %s", i, h.State(), h.Err(), log)
			}
		}
		h.Settle(op, registry.Registered, nil)
		cancel()
		if h.failed(op, one); h.Err() != nil || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("interrupted: %v; the log has %s", h.Err(), log)
		}
	}
}

// TestSet: another value has to be put, and the same one has not.
func TestSet(t *testing.T) {
	h, _ := newTestHandle(t)
	h.value = "a"
	h.Settle(t.Context(), registry.Registered, nil)
	for _, step := range []struct {
		value string
		want  bool // it has to be put
	}{{"a", false}, {"b", true}, {"c", true}, {"c", true}} {
		h.set(step.value)
		if got := len(h.changed) == 1; got != step.want || h.value != step.value || (h.State() == registry.Pending) != step.want {
			t.Errorf("%s: changed %t, %v", step.value, got, h.State())
		}
	}
}

// TestLoadCache: the cache of another registry, or without the service, is not used.
func TestLoadCache(t *testing.T) {
	cache, err := registry.OpenCache(t.TempDir(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, origin := range map[string]string{"ours": "here", "another": "elsewhere"} {
		cache.Store(registry.Record{
			Service: name, Origin: origin, Cluster: 1, Term: 2, Revision: 3, Changed: time.Unix(1, 0), Endpoints: []registry.Endpoint{{Addr: "10.0.0.1:80", Weight: 1}},
		})
	}
	cache.Close() // writes
	for name, want := range map[string]bool{"ours": true, "another": false, "none": false} {
		s := &service{r: &Registry{cache: cache, origin: "here"}, name: name, view: newView(1, 1)}
		before := time.Now()
		s.loadCache()
		if got := s.cached != nil; got != want || len(s.view.current) > 0 != want || (s.pos == position{1, 2, 3}) != want {
			t.Errorf("%s: used %t, at %+v, %v", name, got, s.pos, s.view.current)
		}
		if want && (s.coldAt.Before(before.Add(coldWait)) || !s.cached.Changed.Equal(time.Unix(1, 0)) || s.cached.Source != registry.SourceCache) {
			t.Errorf("%s: %+v at %v", name, s.cached, s.coldAt)
		}
	}
}

// refusing is an etcd that refuses all puts.
type refusing struct {
	clientv3.KV
	clientv3.Lease
	begin  time.Time
	puts   []time.Duration // when they came
	leases []clientv3.LeaseID
	err    error
}

func (r *refusing) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r.puts = append(r.puts, time.Since(r.begin))
	return nil, r.err
}

func (r *refusing) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (r *refusing) Close() error { return nil }

func (r *refusing) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	id := clientv3.LeaseID(1 + len(r.leases))
	r.leases = append(r.leases, id)
	return &clientv3.LeaseGrantResponse{ID: id}, nil
}

// TestPutPauses: the pauses between puts that etcd refuses are longer each time. A lease that has gone is replaced at once.
func TestPutPauses(t *testing.T) {
	for name, c := range map[string]struct {
		err           error
		putsPerPause  int
		leasePerPause bool // and one at first; false means that one lease serves all puts
	}{"no space": {rpctypes.ErrNoSpace, 1, false}, "no lease": {rpctypes.ErrLeaseNotFound, 2, true}} {
		synctest.Test(t, func(t *testing.T) {
			etcd := &refusing{begin: time.Now(), err: c.err}
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }),
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			client.KV, client.Lease = etcd, etcd
			r := &Registry{
				log: slog.New(slog.DiscardHandler), contact: registry.NewContact(), tasks: tasks.New(), ready: make(chan struct{}),
				client: client, opt: Options{Protocols: registry.Protocols{"link"}}, ttl: 10,
			}
			r.position.init()
			close(r.ready)
			r.watches = newWatches(r)
			h := r.Register(registry.Registration{Service: "s", Node: "n", Addr: "10.0.0.1:80", Protocol: "link"})
			time.Sleep(time.Minute)
			synctest.Wait()
			if h.State() != registry.Pending || !errors.Is(h.Err(), c.err) {
				t.Errorf("%s: %v, %v", name, h.State(), h.Err())
			}
			r.tasks.Close()
			pause := minRetry
			for i := c.putsPerPause; i < len(etcd.puts); i += c.putsPerPause {
				if d := etcd.puts[i] - etcd.puts[i-1]; d < pause/2 || d > pause {
					t.Errorf("%s: the pause after %v is %v, want %v or up to half less", name, etcd.puts[i-1], d, pause)
				}
				if c.leasePerPause && etcd.puts[i-1] != etcd.puts[i-2] {
					t.Errorf("%s: the second put is at %v, after %v", name, etcd.puts[i-1], etcd.puts[i-2])
				}
				pause = min(2*pause, maxRetry)
			}
			tries, leases := len(etcd.puts)/c.putsPerPause, 1
			if c.leasePerPause {
				leases += tries
			}
			if tries < 20 || len(etcd.leases) != leases {
				t.Errorf("%s: %d leases for %d puts, want %d", name, len(etcd.leases), len(etcd.puts), leases)
			}
		})
	}
}

// TestKeptLease: a lease is kept alive anew if it is another one, or is kept alive no longer.
func TestKeptLease(t *testing.T) {
	h, _ := newTestHandle(t)
	h.r.tasks.Close() // what is kept alive anew ends at once
	for name, c := range map[string]struct {
		id      clientv3.LeaseID // to keep; the present one is 1
		prepare func(alive chan struct{})
		want    bool // it is kept alive anew
	}{
		"alive":   {1, func(chan struct{}) {}, false},
		"renewed": {1, func(alive chan struct{}) { alive <- struct{}{}; alive <- struct{}{} }, false},
		"ended":   {1, func(alive chan struct{}) { alive <- struct{}{}; close(alive) }, true},
		"another": {2, func(chan struct{}) {}, true},
		"none":    {0, func(chan struct{}) {}, false},
	} {
		alive := make(chan struct{}, 2)
		c.prepare(alive)
		k := keptLease{1, alive}
		k.keep(t.Context(), h.r, c.id)
		if got := k.alive != (<-chan struct{})(alive); got != c.want || k.alive == nil || len(alive) > 0 || c.want && k.id != c.id || !c.want && k.id != 1 {
			t.Errorf("%s: lease %d, anew %t", name, k.id, got)
		}
	}
	var k keptLease
	if k.keep(t.Context(), h.r, 0); k.alive != nil || k.id != 0 {
		t.Errorf("without a lease: %+v", k)
	}
}

// ordered is a context of a goroutine that asks for Done before it changes what the test reads: after pass the changes follow the reads.
type ordered struct {
	context.Context
	mu sync.Mutex
}

func (o *ordered) pass() {
	o.mu.Lock()
	defer o.mu.Unlock()
}

// Done implements context.Context.
func (o *ordered) Done() <-chan struct{} {
	o.pass()
	return o.Context.Done()
}

// TestLeaseKeeper: when a lease of nine seconds is renewed, by how many streams, and when it counts as gone.
func TestLeaseKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{log: slog.New(slog.DiscardHandler), tasks: tasks.New(), ttl: 9}
		r.tasks.Close() // the test makes the responses of all streams
		k := &leaseKeeper{r: r, id: 1, alive: make(chan struct{}, 1), responses: make(chan leaseResponse)}
		begin, ctx := time.Now(), &ordered{Context: t.Context()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.run(ctx)
		}()
		until := func(at time.Duration) {
			time.Sleep(time.Until(begin.Add(at)))
			synctest.Wait()
		}
		expect := func(what string, streams, asked, alive int) {
			t.Helper()
			got := 0
			for _, s := range k.streams {
				got += len(s.ask)
			}
			if len(k.streams) != streams || got != asked || len(k.alive) != alive {
				t.Errorf("%s: %d streams, %d are asked again, renewed %d times; want %d, %d, %d", what, len(k.streams), got, len(k.alive), streams, asked, alive)
			}
			ctx.pass()
		}
		const second = time.Second
		until(second / 2)
		expect("at first", 1, 0, 0)
		until(second * 5 / 2)
		expect("nothing is heard", 3, 0, 0)
		first, other := k.streams[0], k.streams[1]
		k.responses <- leaseResponse{of: first, err: errors.New("why")}
		synctest.Wait()
		expect("one has ended", 2, 0, 0)
		k.responses <- leaseResponse{of: other, ttl: 9 * second}
		synctest.Wait()
		expect("one responds", 1, 0, 1)
		<-k.alive
		until(3*second - 1)
		expect("before the next renewal", 1, 0, 0)
		until(3 * second)
		expect("the next renewal", 1, 1, 0)
		<-k.streams[0].ask
		k.responses <- leaseResponse{of: first, ttl: 1} // of a stream that has gone
		synctest.Wait()
		expect("another stream responds late", 1, 0, 0)
		k.responses <- leaseResponse{of: other, ttl: 18 * second}
		synctest.Wait()
		expect("the lease is longer", 1, 0, 1)
		until(9*second - 1)
		expect("before the third renewal", 1, 0, 1)
		until(9 * second)
		expect("the third renewal", 1, 1, 1)
		until(11*second - 1)
		expect("soon after", 1, 1, 1)
		until(11 * second) // a ninth of its time
		expect("nothing is heard again", 2, 1, 1)
		until(21 * second) // 18 s after the last renewal
		select {
		case <-ended:
			t.Error("it is given up too early")
		default:
		}
		until(23 * second)
		select {
		case <-ended:
		default:
			t.Error("it is not given up")
		}
	})
	for _, ttl := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := &Registry{log: slog.New(slog.DiscardHandler), tasks: tasks.New(), ttl: 9}
			r.tasks.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			k := &leaseKeeper{r: r, responses: make(chan leaseResponse)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				k.run(ctx)
			}()
			synctest.Wait()
			k.responses <- leaseResponse{of: k.streams[0], ttl: ttl}
			synctest.Wait()
			select {
			case <-ended:
				if ttl > 0 {
					t.Error("a short lease has gone")
				}
			default:
				if ttl == 0 {
					t.Error("a lease that has gone is kept")
				}
			}
			cancel()
			<-ended
		})
	}
}

// TestSucceed: the log says once that etcd responds, until it has failed.
func TestSucceed(t *testing.T) {
	h, log := newTestHandle(t)
	for i, want := range []int{1, 1, 2, 2} {
		if i == 2 {
			h.r.fail(errors.New("why"))
		}
		h.r.succeed()
		if n := strings.Count(log.String(), "etcd responds"); n != want {
			t.Errorf("response %d: %d lines, want %d", i, n, want)
		}
	}
	if n := h.r.stats.answers.Load(); n != 4 {
		t.Errorf("%d responses", n)
	}
}

// TestChangeOfAnother: a change for another node, or an invalid one, changes nothing.
func TestChangeOfAnother(t *testing.T) {
	h, _ := newTestHandle(t)
	reg := registry.Registration{Service: "s", Node: "n", Addr: "10.0.0.1:80"}
	var err error
	if h.key, h.value, err = h.r.entry(&reg); err != nil {
		t.Fatal(err)
	}
	before := h.value
	for _, other := range []registry.Registration{{Service: "s", Node: "n", Addr: "10.0.0.2:80"}, {Service: "s", Node: "m", Addr: "10.0.0.1:80"}, {}} {
		if h.Change(other); h.value != before || len(h.changed) > 0 {
			t.Errorf("%+v: the value is %s", other, h.value)
		}
	}
	reg.Weight = 2
	if h.Change(reg); h.value == before || len(h.changed) != 1 {
		t.Errorf("another weight: the value is %s", h.value)
	}
}

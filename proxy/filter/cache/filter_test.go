package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/caching/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/filter/cache"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// quiet is a loop without turns.
type quiet struct{ loop.Loop }

func (quiet) Defer(*loop.Flush)                {}
func (quiet) After(time.Duration, *loop.Timer) {}
func (quiet) Now() time.Duration               { return time.Second }

// bytesOfFilter is the memory that a filter of newFilter may take.
const bytesOfFilter = 1 << 20

// newFilter returns a filter, its pool, and a request for a path.
func newFilter(path string) (f outcomeFilter, pool *exchange.Pool, ex *exchange.Exchange) {
	f, pool, ex, _ = newCountedFilter(path)
	return f, pool, ex
}

// newCountedFilter returns also the service, which has the counters of the filter.
func newCountedFilter(path string) (f outcomeFilter, pool *exchange.Pool, ex *exchange.Exchange, of *service.Service) {
	w := shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1)
	pool, of = exchange.NewPool(w), &service.Service{Shard: w, Config: &config.Service{}}
	f = cache.New(&exchange.FilterPlace{
		Shard: w, Pool: pool, Route: &config.Route{Cache: config.Cache{Bytes: bytesOfFilter, Stale: time.Minute}}, Service: of,
	}).(outcomeFilter)
	ex = pool.Exchange(nil)
	ex.Request.Codec, ex.Request.Method, ex.Request.Path = protocol.CodecHTTP, []byte("GET"), []byte(path)
	return f, pool, ex, of
}

type outcomeFilter interface {
	exchange.EarlyFilter
	exchange.OutcomeFilter
}

// send has a filter take a request, which it must not answer.
func send(t *testing.T, f outcomeFilter, ex *exchange.Exchange) {
	t.Helper()
	ex.Request.Headers, ex.Edited = ex.Request.Headers[:0], ex.Edited[:0]
	if f.Early(ex) {
		t.Fatalf("%.5s: a response is in the cache", ex.Request.Path)
	}
	f.Request(ex)
}

// stale is the headers of a response that is stored and must be validated.
func stale(more ...protocol.Header) []protocol.Header {
	return append([]protocol.Header{{Name: []byte("etag"), Value: []byte(`"a"`)}, {Name: []byte("cache-control"), Value: []byte("no-cache")}}, more...)
}

// TestMemoryIsUsedAgain: a request that is sent allocates nothing after another one, whether it validates what is stored or
// not. The memory of a long key is not kept.
func TestMemoryIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		path                string
		validates, allocate bool
	}{
		{"/", false, false}, {"/", true, false}, {"/" + strings.Repeat("a", 1000), false, false}, {"/" + strings.Repeat("a", 1024), false, true},
	} {
		f, pool, ex := newFilter(c.path)
		if send(t, f, ex); c.validates {
			res := pool.Response()
			res.Status, res.Headers = 200, stale()
			f.Response(ex, res)
		}
		f.End(ex)
		n := testing.AllocsPerRun(100, func() {
			send(t, f, ex)
			f.End(ex)
		})
		if sent := len(ex.Request.Headers) > 0; sent != c.validates {
			t.Errorf("%.5s: the request has the headers %q", c.path, ex.Request.Headers)
		}
		if n > 0 != c.allocate && !racetest.Enabled {
			t.Errorf("%.5s: %v allocations for each request", c.path, n)
		}
	}
}

// TestNeverIndexedIsStored: a header that no compression may remember keeps that in the cache, for all headers of its response.
func TestNeverIndexedIsStored(t *testing.T) {
	for _, secret := range []bool{true, false} {
		f, pool, ex := newFilter("/")
		send(t, f, ex)
		res := pool.Response()
		res.Status, res.Headers = 200, stale(protocol.Header{Name: []byte("x-secret"), Value: []byte("b"), NeverIndexed: secret})
		f.Response(ex, res)
		f.End(ex)
		send(t, f, ex)
		same := pool.Response()
		same.Status = 304
		found := 0
		for _, h := range f.Response(ex, same).Headers {
			if name := string(h.Name); name == "etag" || name == "x-secret" {
				if found++; h.NeverIndexed != secret {
					t.Errorf("%s may not be indexed: %t, want %t", name, h.NeverIndexed, secret)
				}
			}
		}
		if f.End(ex); found != 2 {
			t.Errorf("%d of the stored headers", found)
		}
	}
}

// TestBytes: entries, and what is known of their targets, take the bytes of the setting, and no more.
func TestBytes(t *testing.T) {
	f, pool, ex, of := newCountedFilter("/")
	for i := range 3000 {
		ex.Request.Path = fmt.Appendf(nil, "/%d", i)
		send(t, f, ex)
		res := pool.Response()
		res.Status, res.Headers, res.Body = 200, stale(), make([]byte, 100)
		if i%500 == 0 {
			res.Body = make([]byte, bytesOfFilter/8)
		}
		f.Response(ex, res)
		f.End(ex)
	}
	if n := int(of.Stats.CacheBytes) + store.MaxEntries(bytesOfFilter)*shard.TargetBytes; n > bytesOfFilter || n < bytesOfFilter*9/10 {
		t.Errorf("%d bytes, want about %d", n, bytesOfFilter)
	}
}

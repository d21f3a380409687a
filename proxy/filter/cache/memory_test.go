package cache_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
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

// TestMemoryIsUsedAgain: a request that is sent allocates nothing after another one, whether it validates what is stored or
// not. The memory of a long key is not kept.
func TestMemoryIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		path                string
		validates, allocate bool
	}{
		{"/", false, false}, {"/", true, false}, {"/" + strings.Repeat("a", 1000), false, false}, {"/" + strings.Repeat("a", 1024), false, true},
	} {
		w := shard.New(&shard.Process{Loops: 1}, 0, quiet{}, nil, 1)
		pool := exchange.NewPool(w)
		route := &config.Route{Cache: config.Cache{Bytes: 1 << 20, Stale: time.Minute}}
		f := cache.New(&exchange.FilterPlace{Shard: w, Pool: pool, Route: route, Service: &service.Service{Shard: w, Config: &config.Service{}}}).(interface {
			exchange.EarlyFilter
			exchange.OutcomeFilter
		})
		ex := pool.Exchange(nil)
		ex.Request.Codec, ex.Request.Method, ex.Request.Path = protocol.CodecHTTP, []byte("GET"), []byte(c.path)
		send := func() {
			if f.Early(ex) {
				t.Fatalf("%.5s: a response is in the cache", c.path)
			}
			f.Request(ex)
		}
		if send(); c.validates {
			res := pool.Response()
			res.Status = 200
			for name, value := range map[string]string{"etag": `"a"`, "cache-control": "no-cache"} {
				res.Headers = append(res.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
			}
			f.Response(ex, res)
		}
		f.End(ex)
		n := testing.AllocsPerRun(100, func() {
			ex.Request.Headers, ex.Edited = ex.Request.Headers[:0], ex.Edited[:0]
			send()
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

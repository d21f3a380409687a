package collapse_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/filter/collapse"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// quiet is a loop without turns.
type quiet struct{ loop.Loop }

func (quiet) After(time.Duration, *loop.Timer) {}
func (quiet) Stop(*loop.Timer)                 {}
func (quiet) Now() time.Duration               { return 0 }

// stranger is a client that has proved no name.
type stranger struct{ exchange.Caller }

func (stranger) PeerNames() *identity.Names { return nil }

// newFilter returns a filter, and what makes requests for it.
func newFilter() (f exchange.Filter, request func(path string) *exchange.Exchange) {
	w := &shard.Shard{Loop: quiet{}, Process: &shard.Process{Loops: 1}}
	pool, to := exchange.NewPool(w), &service.Service{Shard: w, Config: new(config.Service)}
	route := exchange.NewCopyRoute(to)
	f = collapse.New(&exchange.FilterPlace{Shard: w, Pool: pool, Route: &config.Route{Collapse: true}, Service: to})
	return f, func(path string) *exchange.Exchange {
		ex := pool.Exchange(stranger{})
		ex.Request.Codec, ex.Request.Idempotent, ex.Request.Path, ex.Route = protocol.CodecHTTP, true, []byte(path), route
		return ex
	}
}

// TestMemoryIsUsedAgain: same requests allocate nothing after others. The memory of a long key is not kept, and neither is that
// of many requests.
func TestMemoryIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		path     string
		requests int
		allocate bool
	}{
		{"/", 1, false}, {"/", 2, false}, {"/", 200, false}, {"/", 1100, true}, {"/" + strings.Repeat("a", 1000), 2, false}, {"/" + strings.Repeat("a", 1024), 2, true},
	} {
		f, request := newFilter()
		var all []*exchange.Exchange
		for range c.requests {
			all = append(all, request(c.path))
		}
		n := testing.AllocsPerRun(50, func() {
			for i, ex := range all {
				want := exchange.Wait
				if i == 0 {
					want = exchange.Continue
				}
				if next := f.Request(ex); next != want {
					t.Fatalf("request %d: %v, want %v", i, next, want)
				}
			}
			for i := range all {
				f.End(all[len(all)-1-i])
			}
		})
		if n > 0 != c.allocate && !racetest.Enabled {
			t.Errorf("%.5s with %d bytes, %d requests: %v allocations", c.path, len(c.path), c.requests, n)
		}
	}
}

// TestLeaderHasLeft: while the next request is about to lead, others wait.
func TestLeaderHasLeft(t *testing.T) {
	f, request := newFilter()
	first, second, third := request("/"), request("/"), request("/")
	f.Request(first)
	f.Request(second)
	f.End(first)
	if next := f.Request(third); next != exchange.Wait {
		t.Errorf("the third request: %v", next)
	}
	f.End(second)
	f.End(third)
	if next := f.Request(first); next != exchange.Continue {
		t.Errorf("a request after all have left: %v", next)
	}
}

// TestBodiesAndTrailers: requests with the same body wait for each other, whatever other bodies are in flight. One with a trailer
// waits for none.
func TestBodiesAndTrailers(t *testing.T) {
	f, request := newFilter()
	for i, c := range []struct {
		body     string
		trailers int
		want     exchange.Next
	}{
		{"a", 0, exchange.Continue}, {"b", 0, exchange.Continue}, {"", 0, exchange.Continue},
		{"a", 0, exchange.Wait}, {"b", 0, exchange.Wait}, {"", 0, exchange.Wait},
		{"a", 1, exchange.Continue}, {"", 2, exchange.Continue},
	} {
		ex := request("/")
		ex.Request.Body, ex.Request.Trailers = []byte(c.body), make([]protocol.Header, c.trailers)
		if next := f.Request(ex); next != c.want {
			t.Errorf("request %d: %v, want %v", i, next, c.want)
		}
	}
}

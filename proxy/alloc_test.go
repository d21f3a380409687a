package proxy_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

const (
	postHead = "POST /compute HTTP/1.1\r\nHost: compute\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n"
)

const forwardedHead = "GET / HTTP/1.1\r\nHost: compute\r\nX-Forwarded-For: 198.51.100.7, 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Request-Id: 7\r\nVia: 1.1 edge\r\n\r\n"

// TestAllocationsPerRequest: once connections, free lists and buffers exist, a request
// and its response allocate nothing: from HTTP to HTTP through one sidecar, or through two
// and a link. Requests sampled for a trace do allocate: one in a thousand of those observed.
func TestAllocationsPerRequest(t *testing.T) {
	crowds := []int{1, 64}
	if testing.Short() {
		crowds = crowds[:1]
	}
	for _, hops := range []int{1, 2} {
		for _, clients := range crowds {
			for _, c := range shapes() {
				t.Run(fmt.Sprintf("%d hops/%d clients/%s", hops, clients, c.name), func(t *testing.T) {
					c.o.Hops, c.o.Clients = hops, clients
					m := proxytest.NewAllocMesh(t, c.o)
					want, pieces := []byte(proxytest.ShapeBody), bytesOf(c.pieces)
					calls := 0
					m.CheckAllocs(c.o.Allocs*float64(clients), func() { m.Call(want, pieces...); calls += clients })
					if hedged := m.Served > calls; hedged != c.o.Late {
						t.Errorf("%d calls, and the applications served %d requests", calls, m.Served)
					}
				})
			}
		}
	}
}

// TestAllocationsOfHits: a response from the cache allocates nothing.
func TestAllocationsOfHits(t *testing.T) {
	for _, hops := range []int{1, 2} {
		c := cachedShape()
		c.o.Hops, c.o.Clients = hops, 4
		m := proxytest.NewAllocMesh(t, c.o)
		want, pieces := []byte(proxytest.ShapeBody), bytesOf(c.pieces)
		m.CheckAllocs(0, func() { m.Call(want, pieces...) })
		if m.Served > 4 { // the first one of each client
			t.Errorf("%d hops: the applications served %d requests", hops, m.Served)
		}
	}
}

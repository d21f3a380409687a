package endpoints

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// startReplicas starts three applications that take 5 ms for a request. The first one responds with a
// status at once if that is not 0.
func startReplicas(t *testing.T, status int) (addrs []string) {
	for i := range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if i == 0 && status > 0 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(status)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}))
		t.Cleanup(s.Close)
		addrs = append(addrs, s.Listener.Addr().String())
	}
	return addrs
}

// startProviders starts a sidecar before each application. The first one has limits.
func startProviders(t *testing.T, apps []string, limits string) (links []string) {
	for i, app := range apps {
		if i > 0 {
			limits = ""
		}
		addr := harness.FreeAddrs(t, 1)[0]
		harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m%s}}`, addr, app, limits)).Ready()
		links = append(links, addr)
	}
	return links
}

// startConsumer starts a sidecar that calls the endpoints, and returns its address.
func startConsumer(t *testing.T, protocol string, endpoints []string) (egress string) {
	egress = harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["%s"], protocol: %s, connect_timeout: 15s, timeout: 2m}}`,
		egress, strings.Join(endpoints, `", "`), protocol)).Ready()
	return egress
}

// postMany sends n requests that may not be repeated, 20 at once, and returns how many responses were not 200.
func postMany(t *testing.T, egress string, n int64) (others int64) {
	var sent, bad atomic.Int64
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for sent.Add(1) <= n {
				resp, err := client.Post("http://"+egress+"/", "text/plain", strings.NewReader("body"))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					bad.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return bad.Load()
}

// TestFastRefusals: one of three applications answers at once with 429. It gets at most 1.5 times its
// share of the requests, and at least a seventh, with sidecars before the applications and without.
func TestFastRefusals(t *testing.T) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprint("hops ", hops), func(t *testing.T) {
			endpoints, protocol := startReplicas(t, 429), "http"
			if hops == 2 {
				endpoints, protocol = startProviders(t, endpoints, ""), "link"
			}
			egress := startConsumer(t, protocol, endpoints)
			eventually.Nil(t, "the refusing application to get its share of the requests", func() error {
				if n := postMany(t, egress, 1000); n < 50 || n > 500 {
					return fmt.Errorf("%d of 1000 requests got 429", n)
				}
				return nil
			})
		})
	}
}

// TestRefusingProvider: the sidecar of one of three applications refuses nearly all requests. No caller
// notices, since the others have room.
func TestRefusingProvider(t *testing.T) {
	for _, limits := range []string{"rate_limit: {rate: 1}", "max_pending: 1", "max_concurrency: 1, max_queue: 0"} {
		t.Run(limits, func(t *testing.T) {
			egress := startConsumer(t, "link", startProviders(t, startReplicas(t, 0), ", "+limits))
			if n := postMany(t, egress, 2000); n > 0 {
				t.Errorf("%d of 2000 requests failed", n)
			}
		})
	}
}

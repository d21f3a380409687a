package routing

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// TestSameRequests: of 50,000 same requests at once the application gets one of each loop, and all
// clients get its response. If it is late, it gets a second one of each loop. Then a cache has it.
func TestSameRequests(t *testing.T) {
	const loops, streams = 2, 100
	conns := 500
	if testing.Short() {
		conns = 50
	}
	release, got := make(chan struct{}), atomic.Int32{}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		if r.URL.Path == "/" {
			<-release
		}
		fmt.Fprint(w, "body of ", r.URL.Path)
	}))
	defer app.Close()
	for _, c := range []struct {
		delay string
		most  int32
	}{{"1m", loops}, {"100ms", 2 * loops}} {
		release = make(chan struct{})
		egress := harness.FreeAddrs(t, 1)[0]
		p := harness.Start(t, fmt.Sprintf(`
loops: %d
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app, collapse: true, cache: {ttl: 1m}}]
services: {app: {discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 5m, max_pending: 60000, hedge: {mode: off, delay: %s}}}`,
			loops, egress, app.Listener.Addr(), c.delay))
		p.Ready()
		var all sync.WaitGroup
		var wrong atomic.Int32
		begin := make(chan struct{})
		for range conns {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			if _, err := bodyOf(client, "http://"+egress+"/first"); err != nil { // it opens the connection
				t.Fatal(err)
			}
			for range streams {
				all.Go(func() {
					<-begin
					if body, err := bodyOf(client, "http://"+egress+"/"); err != nil || body != "body of /" {
						if wrong.Add(1) == 1 {
							t.Errorf("%q %v", body, err)
						}
					}
				})
			}
		}
		got.Store(0)
		before := admitted(t, p, "app")
		close(begin)
		eventually.Nil(t, "all requests to arrive", func() error {
			if n := admitted(t, p, "app") - before; n < conns*streams {
				return fmt.Errorf("%d requests of %d", n, conns*streams)
			}
			return nil
		})
		if c.most > loops {
			eventually.Nil(t, "a second request", func() error {
				if n := got.Load(); n <= loops {
					return fmt.Errorf("%d requests", n)
				}
				return nil
			})
		}
		close(release)
		all.Wait()
		if n := got.Load(); n == 0 || n > c.most || wrong.Load() > 0 {
			t.Errorf("delay %s: %d requests, want at most %d; %d responses are wrong", c.delay, n, c.most, wrong.Load())
		}
		t.Logf("delay %s: %d requests for %d", c.delay, got.Load(), conns*streams)
		if n := p.Metric(`remora_cache_requests_total{result="collapsed",service="app"}`); n < conns*streams-int(c.most) {
			t.Errorf("delay %s: %d collapsed", c.delay, n)
		}
		sent := got.Load()
		for range 20 { // connections of their own: both loops
			if body, err := bodyOf(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+egress+"/"); err != nil || body != "body of /" {
				t.Errorf("%q %v", body, err)
			}
		}
		if got.Load() != sent || p.Metric(`remora_cache_bytes{service="app"}`) == 0 {
			t.Errorf("delay %s: %d requests after those, %v bytes in the cache", c.delay, got.Load()-sent, p.Metric(`remora_cache_bytes{service="app"}`))
		}
	}
}

// bodyOf returns the body of a response with status 200.
func bodyOf(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d %s", resp.StatusCode, resp.Header.Get("X-Remora-Error"))
	}
	return string(body), err
}

// admitted is how many requests a service has admitted.
func admitted(t *testing.T, p *harness.Process, service string) int {
	t.Helper()
	var state struct {
		Services map[string]struct{ Requests int }
	}
	_, body := p.Get("/hedging")
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		t.Fatal(err)
	}
	return state.Services[service].Requests
}

// TestUnsafeRequestsToOthers: thousands of POSTs to other targets of a service leave its cache as it is, and
// one to a target removes what is stored of that.
func TestUnsafeRequestsToOthers(t *testing.T) {
	const cached, posts, clients = 100, 8192, 8
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	defer app.Close()
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: a.test}, service: app, cache: {ttl: 1h}}, {service: app}]
services: {app: {discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 2m}}`, egress, app.Listener.Addr()))
	p.Ready()
	tr := &http.Transport{MaxIdleConnsPerHost: clients}
	defer tr.CloseIdleConnections()
	send := func(method, host, path string) (status string) {
		req, err := http.NewRequest(method, "http://"+egress+path, nil)
		if err != nil {
			t.Error(err)
			return ""
		}
		req.Host = host
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Header.Get("Cache-Status")
	}
	for i := range cached {
		send("GET", "a.test", fmt.Sprint("/", i))
	}
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() {
			for i := range posts / clients {
				send("POST", "b.test", fmt.Sprintf("/%d/%d", id, i))
			}
		})
	}
	all.Wait()
	send("POST", "A.test", "/0")
	for i := range cached {
		want := "remora; hit"
		if i == 0 {
			want = "remora; fwd=miss; stored"
		}
		if got := send("GET", "a.test", fmt.Sprint("/", i)); got != want {
			t.Errorf("/%d: %q, want %q", i, got, want)
		}
	}
}

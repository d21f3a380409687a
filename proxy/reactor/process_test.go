package reactor_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit/adaptive"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// TestLoopsShareLimits: loops pass slots to each other at the same time, while endpoints
// change and, at last, the process drains. No request is lost, the application never has
// more requests than its limit, and no slot is left in use. Half of the requests are batch.
func TestLoopsShareLimits(t *testing.T) {
	t.Run("fixed", func(t *testing.T) { shareLimits(t, "3", 3) })
	t.Run("auto", func(t *testing.T) { shareLimits(t, "auto", adaptive.Most) })
}

func shareLimits(t *testing.T, maxConcurrency string, slots int32) {
	const clients, each = 24, 60
	var inApp, most atomic.Int32
	var endpoints []registry.Endpoint
	for range 3 {
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := inApp.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			_, _ = io.Copy(w, r.Body)
			inApp.Add(-1)
		}))
		defer app.Close()
		endpoints = append(endpoints, registry.Endpoint{Addr: app.Listener.Addr().String(), Weight: 1})
	}
	p, e, addr := serve(t, 3, fmt.Sprintf(`max_concurrency: %s, retry: {on: [connect]}`, maxConcurrency))
	update := func(eps ...registry.Endpoint) {
		p.Update(registry.NewSnapshot("local", registry.SourceLive, time.Time{}, eps))
	}
	update(endpoints...)
	var busy sync.WaitGroup
	for i := range clients {
		busy.Add(1)
		go func() {
			defer busy.Done()
			client := &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}
			defer client.CloseIdleConnections()
			for k := range each {
				body := fmt.Sprintf("%d of %d", k, i)
				req, err := http.NewRequest("POST", "http://"+addr, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 > 0 {
					req.Header.Set("x-remora-priority", "batch")
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("request %s: %v", body, err)
					return
				}
				got, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != body {
					t.Errorf("request %s: status %d, response %q", body, resp.StatusCode, got)
				}
				if i == 0 { // one at a time, as Update wants it
					update(append(endpoints[:k%3:k%3], endpoints[k%3+1:]...)...)
				}
			}
		}()
	}
	busy.Wait()
	p.Drain()
	deadline := time.Now().Add(waitLimit)
	for used, queued := p.Slots("local"); used != 0 || queued != 0 || p.Pending() != 0; used, queued = p.Slots("local") {
		if time.Now().After(deadline) {
			t.Fatalf("%d slots in use, %d queued, %d pending at rest", used, queued, p.Pending())
		}
		time.Sleep(time.Millisecond)
	}
	if n := most.Load(); n > slots {
		t.Errorf("%d requests at once in the application, want at most %d", n, slots)
	}
	stop(t, e)
}

// TestMoveBetweenLoops: clients whose connections move from loop to loop lose no request.
func TestMoveBetweenLoops(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer app.Close()
	p, e, addr := serve(t, 3, "")
	p.Update(registry.NewSnapshot("local", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app.Listener.Addr().String(), Weight: 1}}))
	moved := func() (n uint64) {
		for _, l := range e.Loops() {
			counts := make(chan uint64)
			l.Post(func() { counts <- l.(stats.Metered).Stats().Moved })
			n += <-counts
		}
		return n
	}
	var busy sync.WaitGroup
	end := time.Now().Add(waitLimit)
	for i := range 12 {
		busy.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}
			defer client.CloseIdleConnections()
			for k := 0; moved() < 4; k++ {
				body := fmt.Sprintf("%d of %d", k, i)
				resp, err := client.Post("http://"+addr, "text/plain", strings.NewReader(body))
				if err != nil {
					t.Errorf("request %s: %v", body, err)
					return
				}
				got, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != body || time.Now().After(end) {
					t.Errorf("request %s: status %d, response %q", body, resp.StatusCode, got)
					return
				}
			}
		})
	}
	busy.Wait()
	p.Drain()
	stop(t, e)
}

// serve runs a process whose clients reach service local, with more settings of that, at an address.
func serve(t *testing.T, loops int, settings string) (*proxy.Process, *reactor.Reactor, string) {
	cfg, err := config.Parse("a.yaml", fmt.Appendf(nil, `
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http, service: local}]
services:
  local: {discover: static, endpoints: ["127.0.0.1:2"], protocol: http, connect_timeout: 15s, timeout: 2m, %s}
`, settings), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	e, err := reactor.Start(reactor.Options{Engine: reactor.EnvironmentEngine(), Loops: loops, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.NewProcess(cfg, loops)
	workers := make(map[loop.Loop]*proxy.Worker)
	for i, l := range e.Loops() {
		workers[l] = proxy.NewWorker(p, l, quiet, uint64(i))
	}
	listener := p.Generation().Listener(cfg.Listeners[0].Name)
	ln, err := e.Listen("127.0.0.1:0", reactor.ListenOptions{}, func(l loop.Loop, _ string) loop.Receiver {
		return listener.Accept(workers[l])
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, e, ln.Addr().String()
}

func stop(t *testing.T, e *reactor.Reactor) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
}

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestReady: /readyz and /healthz have the right status in each phase of a sidecar.
func TestReady(t *testing.T) {
	s := newSidecar(t, twoServices)
	expect := func(status int, body string) {
		t.Helper()
		if got, text := s.get("/readyz"); got != status || text != body {
			t.Errorf("/readyz has status %d %q, want %d %q", got, text, status, body)
		}
	}
	expect(503, "starting\n")
	if resp := s.call(http.MethodPost, "/drain"); resp.StatusCode != 503 || s.drains.Load() != 0 {
		t.Errorf("/drain while starting has status %d", resp.StatusCode)
	}
	s.api.Enter(Serving)
	expect(503, "service compute: no endpoints known yet\nservice empty: no endpoints known yet\n")
	s.update("compute", "10.0.0.1:1")
	expect(503, "service empty: no endpoints known yet\n")
	s.update("empty") // it is known to have no endpoints; the service unused has no route
	expect(200, "ready\n")
	if resp := s.call(http.MethodPost, "/drain"); resp.StatusCode != 202 || s.drains.Load() != 1 {
		t.Errorf("/drain has status %d", resp.StatusCode)
	}
	expect(503, "draining\n")
	s.api.Enter(Drained)
	s.api.Enter(Serving) // phases never go back
	expect(503, "drained\n")
	if later := Drained + 1; later.String() != "unknown" {
		t.Errorf("a phase after the last: %s", later)
	}
	if status, body := s.get("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz has status %d %q", status, body)
	}
}

// TestStuckLoop: responses that need a stuck loop are errors that name it.
func TestStuckLoop(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute")
	s.update("empty")
	s.api.Enter(Serving)
	s.api.loopTimeout = defaultLoopTimeout
	release := make(chan struct{})
	s.proc.Workers()[1].Post(func() { <-release })
	defer close(release)
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/healthz":      {503, "loops [1] do not respond\n"},
		"/readyz":       {503, "loops [1] do not respond\n"},
		"/endpoints":    {503, "admin: loops [1] do not respond\n"},
		"/hedging":      {503, "admin: loops [1] do not respond\n"},
		"/stats":        {503, "admin: loops [1] do not respond\n"},
		"/milliseconds": {503, "admin: loops [1] do not respond\n"},
		"/metrics":      {503, "admin: loops [1] do not respond\n"},
	} {
		eventually.Nil(t, path+" to name the stuck loop", func() error { // the other may be late on a busy machine
			if status, body := s.get(path); status != want.status || !strings.Contains(body, want.text) {
				return fmt.Errorf("%d %q", status, body)
			}
			return nil
		})
	}
}

func TestEndpoints(t *testing.T) {
	s := newSidecar(t, twoServices)
	app := newApp(t)
	s.update("compute", app)
	for range 4 {
		if status := s.request("GET", "/"); status != 200 {
			t.Fatalf("has status %d", status)
		}
	}
	_, body := s.get("/endpoints")
	var got endpointsBody
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	svc := got.Services["compute"]
	if len(got.Services) != 3 || len(svc.Endpoints) != 1 || svc.Version == 0 || svc.Applied != svc.Version ||
		svc.Source != "live" || svc.Revision != 7 || svc.Changed.Unix() != 1700000000 {
		t.Fatalf("%s", body)
	}
	e := svc.Endpoints[0]
	if e.Address != app || e.Weight != 1 || e.Protocol != "http" || e.Connections == 0 || e.LatencyMS <= 0 || e.Reported != nil {
		t.Errorf("%+v", e)
	}
	if other := got.Services["unused"]; other.Version != 0 || other.Source != "" || other.Changed != nil || other.Endpoints == nil {
		t.Errorf("a service without a snapshot: %+v", other)
	}
	if len(got.Refused) != 1 || got.Refused[0].Address != "127.0.0.1:80" || svc.SlotLimit != 8 || len(got.Sources) != 2 {
		t.Errorf("%s", body)
	}
	if len(got.Registrations) != 1 || got.Registrations[0].State != "registered" || !got.Registry.Connected {
		t.Errorf("%s", body)
	}
	// Field order is part of the format.
	for _, pair := range [][2]string{
		{`"registry"`, `"registrations"`}, {`"registrations"`, `"services"`}, {`"compute"`, `"empty"`},
		{`"version"`, `"applied"`}, {`"address"`, `"weight"`}, {`"weight"`, `"protocol"`}, {`"stalled"`, `"connections"`},
	} {
		if strings.Index(body, pair[0]) > strings.Index(body, pair[1]) {
			t.Errorf("%s is after %s", pair[0], pair[1])
		}
	}
}

// TestSlots: /endpoints shows the requests that are at the application, and those that wait for a slot.
func TestSlots(t *testing.T) {
	s := newSidecar(t, twoServices)
	release := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(app.Close)
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end)
	s.update("compute", app.Listener.Addr().String())
	var requests sync.WaitGroup
	for range 11 {
		requests.Go(func() {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get("http://" + s.egress + "/")
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	eventually.True(t, "three requests to wait for the eight slots", func() bool {
		svc := decode[endpointsBody](s, "/endpoints").Services["compute"]
		return svc.Slots == 8 && svc.Queued == 3 && svc.Pending == 11 && svc.SlotLimit == 8
	})
	f := s.scrape()
	for name, want := range map[string]float64{"slots_in_use": 8, "requests_queued": 3, "requests_pending": 11, "slots_limit": 8} {
		if got := value(f, prefix+name, "service=compute"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	end()
	requests.Wait()
}

// TestOneQuery: the loops get the functions of one query at a time, however many ask. A caller that gives up gets no results.
func TestOneQuery(t *testing.T) {
	s := newSidecar(t, twoServices)
	stuck, release := make(chan struct{}), make(chan struct{})
	s.proc.Workers()[0].Post(func() { close(stuck); <-release })
	<-stuck
	first, began := make(chan error), make(chan struct{}, loopCount)
	go func() {
		_, err := gather(t.Context(), s.api, func(*proxy.Worker) struct{} { began <- struct{}{}; return struct{}{} })
		first <- err
	}()
	<-began // on the second loop
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var more atomic.Int32
	for range 20 {
		if results, err := gather(gone, s.api, func(*proxy.Worker) struct{} { more.Add(1); return struct{}{} }); results != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", results, err)
		}
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := gather(t.Context(), s.api, func(*proxy.Worker) struct{} { return struct{}{} }); err != nil || more.Load() > 0 {
		t.Errorf("%d functions of others have run, %v", more.Load(), err)
	}
}

// TestMerge: the reports of loops with different snapshots are merged by endpoint.
func TestMerge(t *testing.T) {
	reports := []stats.WorkerReport{
		{Services: []stats.ServiceReport{{Name: "a", Version: 7, HedgesInFlight: 1, Endpoints: []stats.EndpointReport{
			{Addr: "x", Pending: 1, Connections: 2, Latency: 3, Others: 4, Reported: true, FailedInRow: 3, RecentGood: 1,
				Ejections: 1, Stats: stats.EndpointStats{Hedges: 1}},
			{Addr: "y", Pending: 1},
			{Addr: "z", Stalled: true, Unhealthy: true, Ejected: true, EjectedBy: outlier.BySuccessRate, FailedInRow: 1, Others: 1},
		}}}},
		{Services: []stats.ServiceReport{{Name: "a", Version: 5, HedgesInFlight: 2, Panics: true, Endpoints: []stats.EndpointReport{
			{Addr: "w", Pending: 5},
			{Addr: "x", Pending: 10, Connections: 20, Latency: 2, Stalled: true, Unhealthy: true, FailedInRow: 2, RecentGood: 10,
				Ejected: true, EjectedBy: outlier.ByLatency, Ejections: 10, Stats: stats.EndpointStats{Hedges: 10}},
			{Addr: "z", Latency: 5, FailedInRow: 2, Others: 2, Reported: true, EjectedBy: outlier.ByLatency},
		}}}},
		{Services: []stats.ServiceReport{{Name: "a", Version: 6, Endpoints: []stats.EndpointReport{{Addr: "w", Pending: 1}}}}},
	}
	got := merge(reports)[0]
	want := []stats.EndpointReport{
		{Addr: "x", Pending: 11, Connections: 22, Latency: 3, Others: 4, Reported: true, Stalled: true, Unhealthy: true, FailedInRow: 3, RecentGood: 11,
			Ejected: true, EjectedBy: outlier.ByLatency, Ejections: 11, Stats: stats.EndpointStats{Hedges: 11}},
		{Addr: "y", Pending: 1},
		{Addr: "z", Latency: 5, Stalled: true, Unhealthy: true, Ejected: true, EjectedBy: outlier.BySuccessRate, FailedInRow: 2, Others: 2, Reported: true},
		{Addr: "w", Pending: 6},
	}
	if got.Version != 5 || got.HedgesInFlight != 3 || !got.Panics || len(got.Endpoints) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, e := range got.Endpoints {
		if e != want[i] {
			t.Errorf("endpoint %+v, want %+v", e, want[i])
		}
	}
}

// TestGuard: requests for another host or from another origin are refused.
func TestGuard(t *testing.T) {
	s := newSidecar(t, twoServices+withProfiles)
	for _, c := range []struct {
		method, path, host, site string
		want                     int
	}{
		{"GET", "/healthz", "127.0.0.1:9901", "", 200},
		{"GET", "/healthz", "[::1]:9901", "", 200},
		{"GET", "/healthz", "[::1]", "", 200},
		{"GET", "/healthz", "localhost", "", 200},
		{"HEAD", "/healthz", "127.0.0.1", "", 200},
		{"GET", "/healthz", "evil.example", "", 403},
		{"GET", "/healthz", "evil.example:9901", "", 403},
		{"POST", "/drain", "127.0.0.1:9901", "cross-site", 403},
		{"POST", "/drain", "127.0.0.1:9901", "", 503}, // starting
		{"GET", "/drain", "127.0.0.1:9901", "", 405},
		{"POST", "/healthz", "127.0.0.1:9901", "", 405},
		{"GET", "/nothing", "127.0.0.1:9901", "", 404},
		{"GET", "/debug/pprof/goroutine", "127.0.0.1:9901", "", 200},
	} {
		req := httptest.NewRequest(c.method, "http://"+c.host+c.path, nil)
		if c.site != "" {
			req.Header.Set("Sec-Fetch-Site", c.site)
		}
		rec := httptest.NewRecorder()
		s.api.http.Handler.ServeHTTP(rec, req)
		if rec.Code != c.want {
			t.Errorf("%s %s at %s has status %d, want %d", c.method, c.path, c.host, rec.Code, c.want)
		}
	}
}

// TestServe starts and closes the API on a real port.
func TestServe(t *testing.T) {
	addr := freeAddr(t)
	s := newSidecar(t, "admin: {address: \""+addr+"\"}\n"+twoServices)
	ln := must.ListenOn(t, "tcp", addr)
	s.api.Start(ln)
	if err := New(s.api.opt).Close(context.Background()); err != nil {
		t.Error(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	_, body := must.Get(t, &client, "http://"+addr+"/config")
	if !strings.Contains(body, "max_concurrency: 8") {
		t.Errorf("/config has %s", body)
	}
	if err := s.api.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("still accepts")
	}
}

// TestReadyVerbose: /readyz?verbose has the sources, the overload state, the engine and the use of each resource, whatever
// the status. Without the token of the API nobody sees it.
func TestReadyVerbose(t *testing.T) {
	s := newSidecar(t, twoServices)
	want := func(status int, body string) {
		t.Helper()
		if got, text := s.get("/readyz?verbose"); got != status || text != body {
			t.Errorf("status %d %q, want %d %q", got, text, status, body)
		}
	}
	const sources = "[+]etcd ok\n[-]dns failed: unresolved since 2023-11-14T22:13:20Z, 3 endpoints stay in use\n"
	want(503, "starting\n"+sources+"overload: normal\ncups: 0 of 100\nengine: epoll\n")
	s.cups.Store(90)
	s.api.opt.Overload.Sample()
	want(503, "starting\n"+sources+"overload: shedding because of cups\ncups: 90 of 100\nengine: epoll\n")
	series := s.scrape()
	for name, value := range map[string]float64{"remora_overload_state": 1, "remora_overload_used": 90, "remora_overload_limit": 100} {
		if f := series[name]; f == nil || f.Metric[0].Gauge.GetValue() != value {
			t.Errorf("%s is %v, want %v", name, f, value)
		}
	}
	s = newSidecar(t, twoServices+"\nadmin: {token: secret}")
	want(503, "starting\n")
}

// TestMergeFewer: a loop whose switch to the generation panicked may lack services and routes.
func TestMergeFewer(t *testing.T) {
	service := func(name string, routes int) stats.ServiceReport {
		return stats.ServiceReport{Name: name, HedgesInFlight: 1, Routes: make([]stats.RouteReport, routes)}
	}
	all := func() stats.WorkerReport {
		return stats.WorkerReport{Services: []stats.ServiceReport{service("a", 1), service("b", 2), service("c", 1)}}
	}
	some := stats.WorkerReport{Services: []stats.ServiceReport{service("b", 1)}}
	for _, c := range []struct {
		reports []stats.WorkerReport
		want    []int // hedges of a, b and c
	}{
		{[]stats.WorkerReport{all(), some, all()}, []int{2, 3, 2}},
		{[]stats.WorkerReport{all(), {}}, []int{1, 1, 1}},
		{[]stats.WorkerReport{some, all()}, []int{1, 2, 1}},
	} {
		var got []int
		for _, s := range merge(c.reports) {
			got = append(got, s.HedgesInFlight)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v hedges, want %v", got, c.want)
		}
	}
}

// TestCloseAborts: Close waits for responses in progress, but no longer than it may.
func TestCloseAborts(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.api.loopTimeout = waitLimit
	ln := must.Listen(t)
	s.api.Start(ln)
	release := make(chan struct{})
	defer close(release)
	stuck := make(chan struct{})
	s.proc.Workers()[0].Post(func() { close(stuck); <-release })
	<-stuck
	nc := must.Dial(t, "tcp", ln.Addr().String())
	must.Write(t, nc, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	eventually.True(t, "the request to be in progress", func() bool {
		s.api.conns.mu.Lock()
		defer s.api.conns.mu.Unlock()
		return s.api.conns.shared.busy == 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.api.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v", err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(waitLimit))
	if n, err := nc.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("%d bytes of a response that was aborted", n)
	}
}

// TestListenerFails: the log says that the API has stopped because its listener failed, and not that it was closed.
func TestListenerFails(t *testing.T) {
	for _, fails := range []bool{true, false} {
		s := newSidecar(t, twoServices)
		var log bytes.Buffer
		s.api.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
		ln := must.Listen(t)
		s.api.Start(ln)
		if fails {
			ln.Close()
			s.api.serving.Wait()
		}
		if err := s.api.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if said := strings.Contains(log.String(), "admin API has stopped: its listener failed"); said != fails || fails && !strings.Contains(log.String(), ln.Addr().String()) {
			t.Errorf("the listener fails: %t; the log says\n%s", fails, log.String())
		}
	}
}

package bench

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const wrkOutput = `Running 3s test @ http://127.0.0.1:20001/compute
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.45ms  300.00us   9.00ms   90.00%
Requests/sec:  40000.00
Transfer/sec:     10.00MB
RESULT {"requests":120000,"seconds":3.000100,"errors":2,"p50":1400.0,"p99":2600.5,"p999":4000.0,"max":9000.0}
`

func TestParseWrk(t *testing.T) {
	r, err := parseWrk([]byte(wrkOutput))
	if want := (Result{Requests: 120000, Errors: 2, Seconds: 3.0001, Latency: Latency{1400, 2600.5, 4000, 9000}}); err != nil || *r != want {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "unable to connect", "RESULT {", "RESULT {\"requests\":\"many\"}"} {
		if _, err := parseWrk([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// wrk gets the scripts, whole seconds, and the URL.
func TestWrkIsRun(t *testing.T) {
	dir := t.TempDir()
	wrk := filepath.Join(dir, "wrk")
	script := "#!/bin/sh\nfor script; do [ \"$last\" = -s ] && break; last=$script; done\n" +
		"test -r $(dirname $script)/result.lua && echo \"$@\" >" + dir + "/args && echo '" +
		strings.TrimSpace(wrkOutput[strings.Index(wrkOutput, "RESULT"):]) + "'\n"
	if err := os.WriteFile(wrk, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Closed(64, 1500*time.Millisecond).send(t.Context(), Tools{Wrk: wrk}, "http://x/compute")
	if err != nil || r.Requests != 120000 {
		t.Fatalf("%+v, %v", r, err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.HasPrefix(string(args), "-t1 -c64 -d2s --timeout 60s -s ") || !strings.HasSuffix(string(args), "/wrk/post.lua http://x/compute\n") {
		t.Errorf("%s, %v", args, err)
	}
	if _, err := sized(10_000, 1024, time.Second).send(t.Context(), Tools{Wrk: wrk}, "http://x/compute"); err != nil {
		t.Fatal(err)
	}
	args, err = os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.HasPrefix(string(args), "-t1 -c10000 -d1s ") || !strings.HasSuffix(string(args), "/wrk/post.lua http://x/compute -- 1024\n") {
		t.Errorf("%s, %v", args, err)
	}
}

// A row that answers nothing has no figures.
func TestALoadWithoutAnAnswer(t *testing.T) {
	rows, err := Choose([]string{"direct"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Tools{Lab: self(t)}, rows[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nothing := Load{"nothing", func(context.Context, Tools, string) (*Result, error) { return &Result{Seconds: 1}, nil }, 0}
	if sample, err := nothing.run(t.Context(), s, nil); err != nil || len(sample.Figures) > 0 {
		t.Errorf("%+v, %v", sample, err)
	}
}

func TestParseCollections(t *testing.T) {
	n, err := parseCollections([]byte("go_gc_duration_seconds_sum 0.1\ngo_gc_duration_seconds_count 17\n"))
	if err != nil || n != 17 {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := parseCollections([]byte("go_goroutines 5\n")); err == nil {
		t.Error("a sidecar that does not tell was accepted")
	}
}

// A crowd's connections are alive until the server closes them.
func TestCrowd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	c, err := gather(t.Context(), addr, 100)
	defer c.leave()
	if err != nil || len(c) != 100 {
		t.Fatalf("%d connections, %v", len(c), err)
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	server.CloseClientConnections()
	if err := c.check(); err == nil {
		t.Error("connections that were closed count as kept")
	}
}

func TestCrowdIsTurnedAway(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"closed":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("connection", "close") },
	} {
		server := httptest.NewServer(handler)
		c, err := gather(t.Context(), server.Listener.Addr().String(), 3)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		c.leave()
		server.Close()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if c, err := gather(t.Context(), ln.Addr().String(), 3); err == nil {
		c.leave()
		t.Error("nobody listens, and there was an answer")
	}
}

// An observer tells whether it saw metrics and spans.
func TestObserver(t *testing.T) {
	o, err := newObserver()
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	scraped := make(chan struct{}, 100)
	sidecar := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			scraped <- struct{}{}
		}
	}))
	defer sidecar.Close()
	o.watch(sidecar.Listener.Addr().String())
	<-scraped
	<-scraped // the first has been counted
	if err := o.check(); err == nil {
		t.Error("no span came, and nothing is said")
	}
	if _, err := http.Post("http://"+o.addr+"/v1/traces", "application/x-protobuf", strings.NewReader("spans")); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

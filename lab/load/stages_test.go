package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fakeSidecar is a sidecar whose CPU time grows by 3 ms with each scrape.
func fakeSidecar(t *testing.T, token string) Sidecar {
	t.Helper()
	scrapes := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		scrapes++
		fmt.Fprintf(w, "# HELP x\nprocess_cpu_seconds_total %g\nother 7\n", float64(scrapes)*.003)
	}))
	t.Cleanup(s.Close)
	return Sidecar{"fake", s.Listener.Addr().String()}
}

func TestStages(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n := calls.Add(1); {
		case n <= 2:
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		case n%10 == 0:
			http.Error(w, "no", 500)
		}
	}))
	defer s.Close()
	o := Options{
		Targets: []string{s.URL}, Method: http.MethodGet, NoNonce: true,
		Warmup: time.Millisecond, Duration: 200 * time.Millisecond, Timeout: testTimeout,
	}
	stages, err := (&Stages{
		Connections: []int{1, 4}, Delay: time.Second, Ready: time.Minute, Sidecars: []Sidecar{fakeSidecar(t, "secret")}, Token: "secret",
	}).Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range stages {
		if s.Connections != []int{1, 4}[i] || s.Good == 0 || s.Failed == 0 || s.Failed > s.Good || s.Rate <= 0 || s.P50 <= 0 || s.P99 < s.P50 ||
			s.Ceiling != float64(s.Connections) || len(s.CPU) != 1 || s.CPU[0] != 3*time.Millisecond/time.Duration(s.Good) {
			t.Errorf("stage %d: %+v", i, s)
		}
	}
}

func TestStagesText(t *testing.T) {
	s := Stages{Sidecars: []Sidecar{{"consumer", ""}, {"small", ""}}}
	stages := []Stage{
		{Connections: 128, Good: 149_000, Rate: 2483.3, Ceiling: 2560, P50: 50_200 * time.Microsecond, P99: 51_500 * time.Microsecond, CPU: []time.Duration{20_500, 3_200}},
		{Connections: 512, Failed: 3, Rate: 9700, Ceiling: 10_240, P50: 52 * time.Millisecond, P99: 60 * time.Millisecond, CPU: []time.Duration{19_000, 2_900}},
	}
	const want = "| connections | QPS | ceiling | share of ceiling | p50 ms | p99 ms | failed | consumer CPU µs | small CPU µs | together |\n" +
		"|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n" +
		"| 128 | 2483 | 2560 | 97.0% | 50.2 | 51.5 | 0 | 20.5 | 3.2 | 23.7 |\n" +
		"| 512 | 9700 | 10240 | 94.7% | 52.0 | 60.0 | 3 | 19.0 | 2.9 | 21.9 |\n" +
		"\nscore: 9700\n"
	var out strings.Builder
	if err := s.Text(&out, stages); err != nil || out.String() != want {
		t.Errorf("%v:\n%s\nwant\n%s", err, &out, want)
	}
}

func TestStagesFail(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	for name, change := range map[string]func(*Stages, *Options){
		"no stage":        func(s *Stages, _ *Options) { s.Connections = nil },
		"empty stage":     func(s *Stages, _ *Options) { s.Connections = []int{1, 0} },
		"no delay":        func(s *Stages, _ *Options) { s.Delay = 0 },
		"two URLs":        func(_ *Stages, o *Options) { o.Targets = append(o.Targets, server.URL) },
		"gRPC":            func(_ *Stages, o *Options) { o.Targets = []string{"grpc://127.0.0.1:1"} },
		"nobody listens":  func(s *Stages, o *Options) { o.Targets, s.Ready = []string{"http://127.0.0.1:1/"}, time.Millisecond },
		"no such sidecar": func(s *Stages, _ *Options) { s.Sidecars = []Sidecar{{"x", "127.0.0.1:1"}} },
		"no CPU time":     func(s *Stages, _ *Options) { s.Sidecars = []Sidecar{{"x", server.Listener.Addr().String()}} },
		"wrong token":     func(s *Stages, _ *Options) { s.Sidecars, s.Token = []Sidecar{fakeSidecar(t, "a")}, "b" },
	} {
		o := Options{Targets: []string{server.URL}, Duration: time.Millisecond}
		s := Stages{Connections: []int{1}, Delay: 1, Ready: time.Minute}
		change(&s, &o)
		if stages, err := s.Run(context.Background(), o); err == nil {
			t.Errorf("%s: %+v", name, stages)
		}
	}
}

package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/config"
)

const withProfiles = "\nadmin: {profiles: true}\n"

// TestProfilesOff: no path of profiles responds until the configuration says so. A reload is
// enough, both ways.
func TestProfilesOff(t *testing.T) {
	s := newSidecar(t, twoServices)
	paths := []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/symbol", "/debug/pprof/trace?seconds=1"}
	refused := func() {
		t.Helper()
		for _, path := range paths {
			if status, body := s.get(path); status != http.StatusForbidden || !strings.Contains(body, "admin.profiles") {
				t.Errorf("%s: %d %q, want 403 and the name of the setting", path, status, body)
			}
		}
		if resp := s.call(http.MethodPost, "/debug/pprof/symbol"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("POST /debug/pprof/symbol: %d, want 403", resp.StatusCode)
		}
	}
	reload := func(yaml string) {
		t.Helper()
		cfg, err := config.Parse("test.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		prepared, switched := make(chan struct{}), make(chan struct{})
		next := s.proc.Prepare(cfg, func() { close(prepared) })
		<-prepared
		s.proc.Switch(next, func() { close(switched) })
		<-switched
	}
	refused()
	reload(twoServices + withProfiles)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap"} {
		if status, body := s.get(path); status != http.StatusOK {
			t.Errorf("%s: %d %q, want 200", path, status, body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if resp := s.call(method, "/debug/pprof/symbol"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s /debug/pprof/symbol: %d, want 200", method, resp.StatusCode)
		}
	}
	reload(twoServices)
	refused()
}

// TestProfilesAreGuarded: pages of other sites take no profiles, and none is endless.
func TestProfilesAreGuarded(t *testing.T) {
	s := newSidecar(t, twoServices+withProfiles)
	gone, leave := context.WithCancel(t.Context()) // of a caller who does not wait for the profile
	leave()
	for _, c := range []struct {
		path, site string
		want       int
	}{
		{"/debug/pprof/profile?seconds=0.01", "cross-site", http.StatusForbidden},
		{"/debug/pprof/trace?seconds=0.01", "same-site", http.StatusForbidden},
		{"/debug/pprof/heap", "cross-site", http.StatusForbidden},
		{"/debug/pprof/trace?seconds=0.01", "same-origin", http.StatusOK},
		{"/debug/pprof/trace?seconds=0.01", "none", http.StatusOK},
		{"/debug/pprof/trace?seconds=0.01", "", http.StatusOK},
		{"/debug/pprof/trace?seconds=300", "", http.StatusOK},
		{"/debug/pprof/trace?seconds=300.1", "", http.StatusBadRequest},
		{"/debug/pprof/profile?seconds=301", "", http.StatusBadRequest},
		{"/debug/pprof/trace?seconds=1e9", "", http.StatusBadRequest},
		{"/debug/pprof/heap?seconds=NaN", "", http.StatusBadRequest},
	} {
		req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:9901"+c.path, nil).WithContext(gone)
		if c.site != "" {
			req.Header.Set("Sec-Fetch-Site", c.site)
		}
		rec := httptest.NewRecorder()
		s.api.http.Handler.ServeHTTP(rec, req)
		if rec.Code != c.want {
			t.Errorf("%s from %q: %d, want %d", c.path, c.site, rec.Code, c.want)
		}
	}
}

// TestWaitsAreSampledDuringProfiles: waits are sampled while a profile of them is taken, and
// neither before nor after.
func TestWaitsAreSampledDuringProfiles(t *testing.T) {
	s := newSidecar(t, twoServices+withProfiles)
	for _, kind := range []string{"block", "mutex"} {
		// The stacks of contend, with their counts since the start of the process.
		sampled := func() string {
			_, text := s.get("/debug/pprof/" + kind + "?debug=1")
			stacks := strings.Split(text, "\n\n")
			return strings.Join(slices.DeleteFunc(stacks, func(stack string) bool { return !strings.Contains(stack, "admin.contend") }), "\n\n")
		}
		quiet := func(when string) {
			t.Helper()
			before := sampled()
			for range 1000 {
				contend()
			}
			if after := sampled(); after != before {
				t.Errorf("%s: sampled %s a profile:\n%s", kind, when, after)
			}
		}
		quiet("before")
		before := sampled()
		eventually.True(t, kind+" to be sampled", func() bool {
			taken := make(chan int, 1)
			go func() {
				status, _ := s.get("/debug/pprof/" + kind + "?seconds=1")
				taken <- status
			}()
			for {
				contend()
				select {
				case status := <-taken:
					if status != http.StatusOK {
						t.Fatalf("%s: %d", kind, status)
					}
					return sampled() != before
				default:
				}
			}
		})
		quiet("after")
	}
}

// contend waits for goroutines that wait for a mutex.
func contend() {
	var mu sync.Mutex
	var waiting sync.WaitGroup
	mu.Lock()
	for range 4 {
		waiting.Go(func() {
			mu.Lock()
			defer mu.Unlock()
		})
	}
	runtime.Gosched()
	mu.Unlock()
	waiting.Wait()
}

// TestSampler: events are sampled until the last of several profiles has been taken.
func TestSampler(t *testing.T) {
	var rates []int
	s := sampler{set: func(rate int) { rates = append(rates, rate) }, rate: 7}
	take := func(query string, next func()) {
		h := s.during(func(http.ResponseWriter, *http.Request) { next() })
		h(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/"+query, nil))
	}
	take("", func() {})
	if len(rates) > 0 {
		t.Errorf("a profile of the past set the rates %v", rates)
	}
	inner, outer := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(outer)
		take("?seconds=1", func() { inner <- struct{}{}; <-inner })
	}()
	<-inner
	take("?seconds=1", func() {})
	if rate := rates[len(rates)-1]; rate != 7 {
		t.Errorf("rate %d while a profile is being taken, want 7", rate)
	}
	close(inner)
	<-outer
	if rate := rates[len(rates)-1]; rate != 0 {
		t.Errorf("rate %d after the last profile, want 0", rate)
	}
}

package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLogLevel(t *testing.T) {
	s := newSidecar(t, twoServices)
	for _, c := range []struct {
		method, body string
		status       int
		response     string
		level        string // after the request
	}{
		{"GET", "", 200, "info\n", "INFO"},
		{"PUT", "debug", 200, "debug\n", "DEBUG"},
		{"PUT", "warn\n", 200, "warn\n", "WARN"},
		{"PUT", "loud", 400, "expected one of debug, info, warn, error\n", "WARN"},
		{"PUT", "", 400, "expected one of debug, info, warn, error\n", "WARN"},
		{"PUT", "error" + strings.Repeat(" ", 1<<20), 200, "error\n", "ERROR"},
		{"PUT", "INFO", 400, "expected one of debug, info, warn, error\n", "ERROR"},
		{"POST", "info", 405, "Method Not Allowed\n", "ERROR"},
		{"GET", "", 200, "error\n", "ERROR"},
	} {
		req := httptest.NewRequest(c.method, "http://127.0.0.1/log/level", strings.NewReader(c.body))
		w := httptest.NewRecorder()
		s.api.http.Handler.ServeHTTP(w, req)
		if w.Code != c.status || w.Body.String() != c.response {
			t.Errorf("%s %.20q: %d %q, want %d %q", c.method, c.body, w.Code, w.Body, c.status, c.response)
		}
		if got := s.api.opt.Level.Level().String(); got != c.level {
			t.Errorf("%s %.20q: the level is %s, want %s", c.method, c.body, got, c.level)
		}
	}
	// A web page of another origin must not change it.
	req := httptest.NewRequest(http.MethodPut, "http://127.0.0.1/log/level", strings.NewReader("debug"))
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	s.api.http.Handler.ServeHTTP(w, req)
	if w.Code != http.StatusForbidden || s.api.opt.Level.Level().String() != "ERROR" {
		t.Errorf("from another site: %d, the level is %s", w.Code, s.api.opt.Level.Level())
	}
}

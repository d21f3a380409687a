package admin

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestJSONIsPrintable: what the API says comes from other machines too, and is read in terminals.
func TestJSONIsPrintable(t *testing.T) {
	const text = "\x1b[31m \u009b2J \u0085 \u202e"
	for _, indent := range []string{forPeople, forPrograms} {
		w := httptest.NewRecorder()
		writeJSON(w, map[string]string{text: text}, indent)
		got := w.Body.String()
		if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("a control character at %d of %q", i, got)
		}
		var back map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &back); err != nil || back[text] != text {
			t.Errorf("%q, %v", back, err)
		}
	}
}

// TestToken: with admin.token set, requests without the token reach only /healthz and
// /readyz.
func TestToken(t *testing.T) {
	const token = "correct-horse"
	s := newSidecar(t, twoServices+"admin: {address: \"0.0.0.0:9901\", token: "+token+"}\n")
	call := func(method, path, authorization string) int {
		req := httptest.NewRequest(method, "http://sidecar.example:9901"+path, nil)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		rec := httptest.NewRecorder()
		s.api.http.Handler.ServeHTTP(rec, req)
		if body := rec.Body.String(); rec.Code == http.StatusUnauthorized &&
			(rec.Header().Get("WWW-Authenticate") == "" || strings.Contains(body, token)) {
			t.Errorf("%s %s: refused with %v %q", method, path, rec.Header(), body)
		}
		return rec.Code
	}
	denied := 0
	for _, wrong := range []string{
		"", "Bearer", "Bearer ", "Bearer " + token[:5], "Bearer " + token + "x", "Bearer x" + token,
		"Basic " + token, basic("admin", "x"), basic(token, ""), token, "Bearer " + strings.ToUpper(token),
	} {
		for _, path := range []string{"/", "/metrics", "/config", "/endpoints", "/hedging", "/stats", "/milliseconds", "/debug/pprof/cmdline", "/none", "//healthz", "/healthz/"} {
			denied++
			if code := call(http.MethodGet, path, wrong); code != http.StatusUnauthorized {
				t.Errorf("GET %s with %q: %d, want 401", path, wrong, code)
			}
		}
		denied++
		if code := call(http.MethodPost, "/drain", wrong); code != http.StatusUnauthorized || s.drains.Load() != 0 {
			t.Errorf("POST /drain with %q: %d and %d drains, want 401 and none", wrong, code, s.drains.Load())
		}
		if code := call(http.MethodGet, "/healthz", wrong); code != http.StatusOK {
			t.Errorf("GET /healthz with %q: %d, want 200", wrong, code)
		}
		if code := call(http.MethodGet, "/readyz", wrong); code != http.StatusServiceUnavailable {
			t.Errorf("GET /readyz with %q: %d, want 503: it is starting", wrong, code)
		}
	}
	for _, right := range []string{"Bearer " + token, "bearer  " + token, basic("", token), basic("admin", token)} {
		for _, path := range []string{"/", "/metrics", "/config", "/endpoints", "/stats", "/milliseconds", "/healthz"} {
			if code := call(http.MethodGet, path, right); code != http.StatusOK {
				t.Errorf("GET %s with %q: %d, want 200", path, right, code)
			}
		}
	}
	if got := s.api.denied.Load(); got != uint64(denied) {
		t.Errorf("counted %d refused requests, want %d", got, denied)
	}
}

// basic returns the header that a browser sends after its user has entered a name and a
// password.
func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// TestHeadersOfResponses: no cache keeps what the API says, and browsers and programs know what it is.
func TestHeadersOfResponses(t *testing.T) {
	s := newSidecar(t, twoServices)
	const text, asJSON, page = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
	for path, want := range map[string]string{
		"/": page, "/healthz": text, "/readyz": text, "/log/level": text, "/endpoints": asJSON, "/hedging": asJSON, "/stats": asJSON, "/milliseconds": asJSON,
		"/history": asJSON, "/milliseconds?since=x": text, "/history?service=none": text,
	} {
		h := s.call(http.MethodGet, path).Header
		if kind, control := h.Get("Content-Type"), h.Get("Cache-Control"); kind != want || control != "no-store" {
			t.Errorf("%s is %s, %s", path, kind, control)
		}
	}
	if got := s.call(http.MethodGet, "/").Header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("a browser may guess what the page is: %q", got)
	}
	s = newSidecar(t, twoServices+"\nadmin: {token: secret}")
	want := []string{`Bearer realm="remora"`, `Basic realm="remora: any name, and admin.token as the password"`}
	if got := s.call(http.MethodGet, "/stats").Header.Values("WWW-Authenticate"); !slices.Equal(got, want) {
		t.Errorf("without the token the API asks for %q", got)
	}
}

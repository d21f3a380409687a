package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard admits requests to the API.
//
// With admin.token set, requests need the token, except /healthz and /readyz, since the
// probes of orchestrators carry no secrets. Without a token the API is served on loopback
// only, and guard refuses web pages: requests for another host name (DNS rebinding) and
// requests from another origin.
func (s *Server) guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	if token := s.config().Admin.Token; token != "" {
		return s.authenticated(token, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "use an IP address or localhost as the host of the admin API", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticated requires the token (RFC 6750, section 2.1). A browser has no bearer
// tokens, but asks its user for a password (RFC 7617) and sends it with the requests of
// the dashboard. So the token is also accepted as the password of any user. Hashes are
// compared, so that the time reveals neither the token nor its length.
func (s *Server) authenticated(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(presented(r)))
		granted := subtle.ConstantTimeCompare(got[:], want[:]) == 1
		if !granted && !isHealthCheck(r) {
			s.denied.Add(1)
			w.Header().Set("WWW-Authenticate", `Bearer realm="remora"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="remora: any name, and admin.token as the password"`)
			http.Error(w, "the admin API requires Authorization: Bearer, with admin.token of the configuration", http.StatusUnauthorized)
			return
		}
		if !granted {
			r.URL.RawQuery = "" // no more than the health
		}
		next.ServeHTTP(w, r)
	})
}

func isHealthCheck(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// presented returns the token of r, or "" if it has none.
func presented(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

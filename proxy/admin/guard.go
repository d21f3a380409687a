package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// guard decides who may call the API.
//
// With a token: whoever presents it, and for the health of the sidecar anyone,
// since orchestrators' probes carry no secrets. Without one it is served on
// loopback only, and what is left to fend off are web pages: one that its
// browser lets reach 127.0.0.1 under another name (DNS rebinding), and one that
// posts here from elsewhere.
func (s *Server) guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	if token := s.config().Admin.Token; token != "" {
		return s.authenticated(token, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if host != "localhost" && net.ParseIP(trimBrackets(host)) == nil {
			http.Error(w, "call the admin API by an IP address or as localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// authenticated asks for the token (RFC 6750, section 2.1). A browser knows no
// bearer tokens, but asks its user for a password (RFC 7617), and sends that with
// what the dashboard asks for: so the token is taken as one, whatever the name.
// Hashes are compared, so that the time it takes tells neither the token nor its
// length.
func (s *Server) authenticated(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(presented(r)))
		granted := subtle.ConstantTimeCompare(got[:], want[:]) == 1
		if !granted && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			s.denied.Add(1)
			w.Header().Set("WWW-Authenticate", `Bearer realm="remora"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="remora: any name, and admin.token as the password"`)
			http.Error(w, "the admin API wants Authorization: Bearer, with admin.token of the configuration", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// presented is the token that r presents, or "".
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

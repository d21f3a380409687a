package routing

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
)

// claimNames are headers by which an application may know who asks, and what the sidecar makes of two
// clients that differ there.
var claimNames = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X_Api_Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token",
	"X-Amz-Security-Token", "X-Vault-Token", "PRIVATE-TOKEN", "X-Csrf-Token", "X-Session-Id", "DPoP", "Signature", "X-Hub-Signature-256",
	"X-Forwarded-Client-Cert", "SSL_CLIENT_S_DN", "Client-Cert", "X-Remote-User", "Remote-User", "X-Forwarded-Email", "X-Ms-Client-Principal",
	"X-Goog-Iap-Jwt-Assertion", "X-Scope-OrgID", "X-Sign", "X-Client-Id",
}

// claimApp lets in who has the good key in any header. Two requests for one path below /collapse wait for each
// other.
type claimApp struct {
	mu   sync.Mutex
	both map[string]chan struct{}
}

func (a *claimApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Together") != "" {
		a.mu.Lock()
		second := a.both[r.URL.Path]
		if second == nil {
			second = make(chan struct{})
			a.both[r.URL.Path] = second
		} else {
			close(second)
		}
		a.mu.Unlock()
		select {
		case <-second:
		case <-time.After(10 * time.Second): // they were taken for the same
		}
	}
	for _, values := range r.Header {
		if values[0] == "good" {
			fmt.Fprint(w, "secret")
			return
		}
	}
	w.WriteHeader(http.StatusUnauthorized)
}

// TestClaims: two clients with other credentials, wherever they have them, get responses of their own, from
// a flight and from a cache, through one sidecar and two.
func TestClaims(t *testing.T) {
	app := httptest.NewServer(&claimApp{both: make(map[string]chan struct{})})
	defer app.Close()
	addrs := harness.FreeAddrs(t, 2)
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], connect_timeout: 15s}}`, addrs[1], app.Listener.Addr())).Ready()
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes:
- {match: {path: /collapse/app}, service: app, collapse: true}
- {match: {path: /collapse/linked}, service: linked, collapse: true}
- {match: {path: /cache/app}, service: app, cache: {ttl: 1h}}
- {match: {path: /cache/linked}, service: linked, cache: {ttl: 1h}}
services:
  app: {discover: static, endpoints: [%q], connect_timeout: 15s, timeout: 1m, hedge: {mode: off, delay: 1m}}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 1m, hedge: {mode: off, delay: 1m}}`,
		addrs[0], app.Listener.Addr(), addrs[1])).Ready()
	var all sync.WaitGroup
	for _, version := range []string{"1.1", "2"} {
		tr := harness.Transport(t, version)
		get := func(url, name, value, together string) int {
			req, err := http.NewRequest("GET", url, nil)
			if err != nil {
				t.Error(err)
				return 0
			}
			req.Header[name] = []string{value}
			if together != "" {
				req.Header.Set("X-Together", together)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for _, service := range []string{"app", "linked"} {
			for _, name := range claimNames {
				path := fmt.Sprintf("/%s/%s/%s", service, name, version)
				all.Go(func() {
					good := make(chan int)
					go func() { good <- get("http://"+addrs[0]+"/collapse"+path, name, "good", "yes") }()
					bad := get("http://"+addrs[0]+"/collapse"+path, name, "bad", "yes")
					if ok := <-good; ok != 200 || bad != 401 {
						t.Errorf("collapse%s: the good one got %d, the bad one %d", path, ok, bad)
					}
				})
				all.Go(func() {
					good, bad := get("http://"+addrs[0]+"/cache"+path, name, "good", ""), get("http://"+addrs[0]+"/cache"+path, name, "bad", "")
					if again := get("http://"+addrs[0]+"/cache"+path, name, "good", ""); good != 200 || bad != 401 || again != 200 {
						t.Errorf("cache%s: the good one got %d, the bad one %d, the good one then %d", path, good, bad, again)
					}
				})
			}
		}
	}
	all.Wait()
}

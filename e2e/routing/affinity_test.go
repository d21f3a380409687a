package routing

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// countedApps starts n applications that respond with their number.
func countedApps(t *testing.T, n int) (addrs []string) {
	for i := range n {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, i)
		}))
		t.Cleanup(srv.Close)
		addrs = append(addrs, srv.Listener.Addr().String())
	}
	return addrs
}

// keyedApps is the configuration of a sidecar with applications that are picked by a key.
func keyedApps(listeners, hash, more string, apps []string) string {
	return fmt.Sprintf(`
loops: 2
limits: {message: 1MiB}
listeners: [%s]
routes: [{service: app}]
services:
  app:
    {discover: static, endpoints: ["%s"], protocol: http, connect_timeout: 15s, timeout: 2m%s, lb: {policy: consistent_hash, hash: {%s}}}`,
		listeners, strings.Join(apps, `", "`), more, hash)
}

// answer sends a request on a connection of its own, and returns the body of the response.
func answer(t *testing.T, c *http.Client, r *http.Request) (string, *http.Response) {
	t.Helper()
	r.Close = true
	resp, body := must.Do(t, c, r)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %q", resp.StatusCode, body)
	}
	return body, resp
}

// TestKeyedByHeader: two sidecars, which list the applications in another order, send a key to the
// same one, on all loops, and streams as well.
func TestKeyedByHeader(t *testing.T) {
	apps := countedApps(t, 6)
	addrs := harness.FreeAddrs(t, 2)
	for i, addr := range addrs {
		if i == 1 {
			slices.Reverse(apps)
		}
		harness.Start(t, keyedApps(fmt.Sprintf("{name: egress, address: %q, protocol: http}", addr), "header: X-Key, balance: 0", "", apps)).Ready()
	}
	seen := map[string]bool{}
	for key := range 10 {
		owner := ""
		for n := range 8 {
			body := []byte("short")
			if n >= 6 {
				body = make([]byte, 2<<20) // over limits.message
			}
			r := must.Request(t, http.MethodPost, "http://"+addrs[n%2]+"/", bytes.NewReader(body))
			r.Header.Set("X-Key", fmt.Sprint(key))
			by, _ := answer(t, http.DefaultClient, r)
			if owner == "" {
				owner = by
			}
			if by != owner {
				t.Errorf("key %d: request %d went to %s, the first to %s", key, n, by, owner)
			}
		}
		seen[owner] = true
	}
	if len(seen) < 2 {
		t.Errorf("all keys are at %v", seen)
	}
}

// TestKeyedTCP: connections of a client go to one application.
func TestKeyedTCP(t *testing.T) {
	apps := countedApps(t, 6)
	addr := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, strings.NewReplacer("protocol: http, connect", "protocol: tcp, connect", "routes: [{service: app}]", "").Replace(
		keyedApps(fmt.Sprintf("{name: egress, address: %q, protocol: tcp, service: app}", addr), "source: true, balance: 0", "", apps))).Ready()
	seen := map[string]bool{}
	for client := range 10 {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+client))}}
		owner := ""
		for range 4 {
			r := must.Request(t, http.MethodGet, "http://"+addr+"/", nil)
			by, _ := answer(t, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}, r)
			if owner == "" {
				owner = by
			}
			if by != owner {
				t.Errorf("client %d: %s and %s", client, owner, by)
			}
		}
		seen[owner] = true
	}
	if len(seen) < 2 {
		t.Errorf("all clients are at %v", seen)
	}
}

// TestSessionCookie: a client without a session gets a cookie, for HTTPS alone if it came by HTTPS, and
// stays at one application, over reloads too.
func TestSessionCookie(t *testing.T) {
	ca := testcerts.New(t)
	files := harness.CertFiles(t, ca, "web.test")
	apps := countedApps(t, 6)
	addrs := harness.FreeAddrs(t, 2)
	listeners := fmt.Sprintf("{name: egress, address: %q, protocol: http}, {name: web, address: %q, protocol: http, tls: {cert: %s, key: %s}}",
		addrs[0], addrs[1], files.Cert, files.Key)
	const hash = "cookie: sid, ttl: 1h"
	p := harness.Start(t, keyedApps(listeners, hash, "", apps))
	p.Ready()
	type session struct {
		client *http.Client
		url    string
		owner  string
	}
	var sessions []session
	seen := map[string]bool{}
	for i := range 12 {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := session{&http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: harness.Trusting(ca)}}, "http://" + addrs[0] + "/a", ""}
		if i%2 == 1 {
			s.url = "https://" + addrs[1] + "/a"
		}
		r := must.Request(t, http.MethodGet, s.url, nil)
		var resp *http.Response
		s.owner, resp = answer(t, s.client, r)
		seen[s.owner] = true
		cookies := resp.Cookies()
		if len(cookies) != 1 {
			t.Fatalf("cookies %v", cookies)
		}
		c := cookies[0]
		if c.Name != "sid" || c.Value == "" || c.Path != "/" || c.MaxAge != 3600 || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != (i%2 == 1) {
			t.Errorf("%s got the cookie %s", s.url, c)
		}
		sessions = append(sessions, s)
	}
	if len(seen) < 2 {
		t.Errorf("all sessions are at %v", seen)
	}
	again := func(when string) {
		t.Helper()
		for _, s := range sessions {
			for _, path := range []string{"", "/b?c=d"} {
				r := must.Request(t, http.MethodGet, s.url+path, nil)
				by, resp := answer(t, s.client, r)
				if by != s.owner || len(resp.Cookies()) > 0 {
					t.Errorf("%s: a session of %s was served by %s, with the cookies %v", when, s.owner, by, resp.Cookies())
				}
			}
		}
	}
	again("at first")
	p.Reload(keyedApps(listeners, hash, ", max_pending: 7", apps), "applied")
	again("after a reload")
	slices.Reverse(apps)
	p.Reload(keyedApps(listeners, hash+", balance: 2", "", apps), "applied")
	again("with the endpoints in another order, and another bound")
}
